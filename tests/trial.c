/* SPDX-License-Identifier: MIT */
/* trial.c: help is tried where a P does not catch up, and welcome only if more gets done. */
#include "test.h"

#include "sched/trial.h"

#include <magpie.h>

#define STEP_NS ((int64_t)1000 * 1000)

static struct trial trial;
static int64_t now_;
static uint32_t slices;
static int64_t asked, helped; /* ns since `forget` */

static void forget(void) { asked = helped = 0; }

/* So long; each step gets done what it gets done, in slices. */
static void pass(int64_t ns, bool behind, uint32_t alone, uint32_t with_help)
{
    for (int64_t end = now_ + ns; now_ < end; now_ += STEP_NS) {
        if (trial_is_due(&trial, now_, behind))
            mag__trial_step(&trial, now_, behind, slices);
        slices += trial.on ? with_help : alone;
        asked += STEP_NS;
        helped += trial.on ? STEP_NS : 0;
    }
}

static void pass_unasked(int64_t ns, uint32_t each)
{
    now_ += ns;
    slices += (uint32_t)(ns / STEP_NS) * each;
}

static void begin(void)
{
    trial = (struct trial){0};
    now_ = INT64_C(1) << 40;
    slices = UINT32_MAX - 1000; /* it comes round */
    forget();
}

static void nobody_is_behind(void)
{
    begin();
    pass(10 * MAG_S, false, 100, 200);
    T_EQ(helped, 0);
}

static void help_that_helps_is_kept(void)
{
    begin();
    pass(MAG_S, true, 100, 133);
    T_GT(helped, MAG_S / 2); /* all but the windows without */
    pass(60 * MAG_S, true, 100, 133);
    T_GT(helped, 55 * MAG_S);
}

static void help_in_vain_is_tried_seldom(void)
{
    begin();
    pass(MAG_S, true, 100, 105);
    T_GT(helped, MAG_S / 10);
    T_LT(helped, MAG_S / 4);
    forget();
    pass(600 * MAG_S, true, 100, 105);
    T_LT(helped, asked / 200);
    T_GT(helped, 0); /* things change */
}

static void what_was_found_is_not_for_ever(void)
{
    begin();
    pass(10 * MAG_S, true, 100, 133);
    T_TRUE(trial.on || trial.window != 0);
    forget();
    pass(20 * MAG_S, true, 100, 90);
    T_LT(helped, asked / 2); /* until it is tried again */
    forget();
    pass(200 * MAG_S, true, 100, 133);
    T_GT(helped, asked / 2);
}

static void who_has_caught_up_needs_none(void)
{
    begin();
    pass(2 * MAG_S, true, 100, 133);
    T_TRUE(trial.on);
    pass(STEP_NS, false, 100, 133);
    T_TRUE(!trial.on);
    forget();
    pass(MAG_S, false, 100, 133);
    T_EQ(helped, 0);
    pass(MAG_S, true, 100, 133); /* and again, as long as before, when it falls behind */
    T_GT(helped, MAG_S / 2);
}

static void a_window_that_lasted_says_nothing(void)
{
    begin();
    while (trial.window != 2)
        pass(STEP_NS, true, 100, 105);
    now_ += 3 * MAG_S; /* others begin their slices meanwhile */
    slices += 900000;
    pass(MAG_S, true, 100, 105);
    T_TRUE(!trial.on);
    T_EQ(trial.vain, 1);
}

static void a_window_may_be_longer(void)
{
    begin();
    for (int i = 0; i < 4; i++) { /* by half, if with help */
        pass(100 * MAG_MS, true, 100, 100);
        if (trial.on)
            pass_unasked(50 * MAG_MS, 100);
    }
    pass(100 * MAG_MS, true, 100, 100);
    T_EQ(trial.window, 0);
    T_TRUE(!trial.on);
}

static void vain_trials_are_forgotten(void)
{
    begin();
    pass(600 * MAG_S, true, 100, 100);
    T_GE(trial.vain, 4);
    pass(3600 * MAG_S, false, 100, 100);
    pass(10 * MAG_S, true, 100, 100);
    T_LT(trial.vain, 3);
}

int main(int argc, char **argv)
{
    t_init(argc, argv);
    T_RUN(nobody_is_behind);
    T_RUN(help_that_helps_is_kept);
    T_RUN(help_in_vain_is_tried_seldom);
    T_RUN(what_was_found_is_not_for_ever);
    T_RUN(who_has_caught_up_needs_none);
    T_RUN(a_window_that_lasted_says_nothing);
    T_RUN(a_window_may_be_longer);
    T_RUN(vain_trials_are_forgotten);
    return t_done();
}
