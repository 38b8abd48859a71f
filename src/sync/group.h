/* SPDX-License-Identifier: MIT */
#ifndef MAG_SYNC_GROUP_H
#define MAG_SYNC_GROUP_H

/* Hangs groups into the runtime: the rooms above may not call down. */
void mag__group_init(void);

#endif
