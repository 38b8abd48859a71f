/* SPDX-License-Identifier: MIT */
#ifndef MAG_TRACE_SCHEDTRACE_H
#define MAG_TRACE_SCHEDTRACE_H

#include <stdint.h>

/* What rt.trace_line is set to: one SCHED line on stderr, with scheddetail a line per P, M and G. By sysmon. */
void mag__schedtrace_line(int64_t now);

#endif
