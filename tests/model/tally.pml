/* The counting algorithm under delivery faults: a model for Spin.
 *
 * Claim: when every record has been delivered and acknowledged and no late invocation is left, each parent's tally is
 * the sum of its records' deltas; and nothing ever gets stuck. Spin checks it in every reachable state.
 *
 * Size: two shards, two parents, four records, and *every* way to lay them out (chosen in `init`). The numbers of
 * crashes, failures and lost answers are unlimited: where the tally is exact the state space is finite without a bound.
 * -DFAULTS=n bounds their sum. The broken variants need that, as their tallies could run away for ever; with n = 1
 * their counterexamples are short as well.
 *
 * What stands for what
 *   record           one bit, 1 2 4 8 in stream order: an INSERT (+1) or a REMOVE (-1) of a child of one parent
 *   mark             the mask of all records up to the last one counted, so that `mark < first record` compares
 *                    positions just as the condition expression does (0, 1, 3, 7, 15 against 1, 2, 4, 8)
 *   update()         one UpdateItem call, the only thing that writes a tally
 *   Slot(0), Slot(1) a shard: its poller, and the invocation that works for it
 *   Slot(ZOMBIE)     an invocation that Lambda has given up: frozen with its old batch, it wakes up later and goes on
 *   todo             records handed to the thread pool; any parent may be next, so every order of the calls is covered
 *
 * Assumptions, each marked where it is made
 *   (A1) a shard delivers in order from its checkpoint, and Lambda waits for one invocation at a time
 *   (A2) a write of one item is atomic with its condition
 *   (A3) one late invocation at a time, any number of them in a row
 * Not assumed: that a failed batch comes back with its old borders. It may come back shorter (bisected) or longer.
 * Left out: throttles that the SDK's retry overcomes and requests that never arrive, since they change nothing; deleted
 * parents, parents that can never be written, and the retry cap, which are the simulation's part.
 *
 * Bugs to plant; each must be found
 *   -DNO_CONDITION      a blind ADD, without the condition on the mark
 *   -DONE_LANE          no shard id: one mark for both shards
 *   -DREPORT_HIGHEST    the partial response names the highest instead of the lowest unapplied record
 *   -DTWO_WRITES        tally and mark in two calls, and the process dies between them
 *   -DSKIP_ZERO         changes that cancel out are not written, though a redelivery may be longer than what failed
 *   -DNO_ZERO_MARK      they are not written, not even when the batch is cut between them (redeliveries are nested)
 * Other algorithms and surroundings; each must be exact
 *   -DREPLAY            as built, and a shard may start again from its oldest record (a mapping that is created anew)
 *   -DSKIP_ZERO -DNESTED  changes that cancel out are skipped, unless the batch is cut between them; exact only if a
 *                       failed batch comes back whole or in pieces, never together with records behind its end
 *   -DONE_LANE -DUNSPLIT  no shard id, but no parent has records in both shards
 *   -DNEVER_DROP -DFAULTS=0  without a fault, nothing is ever dropped
 * Denials of what should happen; each must be refuted, or the model would prove nothing
 *   -DNEVER_DROP        no duplicate is ever dropped
 *   -DNEVER_PART        no parent's records are ever dropped in part, so that the rest is still applied
 *   -DNEVER_CUT         no partial response is ever given
 *   -DNEVER_ZOMBIE      no zombie ever writes
 *   -DNEVER_END         the end, where the claim is asserted, is never reached
 * -DSTORY makes `spin -t` tell a counterexample in words; slots and parents are numbered from 0, records are masks.
 */

#ifdef NO_ZERO_MARK
#define SKIP_ZERO
#define NESTED
#endif

#define SHARDS  2
#define PARENTS 2
#define ALL     15 /* the four records */
#define SLOTS   3  /* one for each shard, and the zombie's */
#define ZOMBIE  2

/* Arithmetic on sets of records. */
#define BIT(m, n)    (((m) >> (n)) & 1)
#define COUNT(m)     (BIT(m, 0) + BIT(m, 1) + BIT(m, 2) + BIT(m, 3))
#define FIRST(m)     ((m) & -(m))
#define UP_TO(m)     ((m) | ((m) >> 1) | ((m) >> 2) | ((m) >> 3)) /* all records up to the last one of m */
#define LAST(m)      (UP_TO(m) & ~(UP_TO(m) >> 1))
#define BEFORE(r)    ((r) - 1) /* all records before the single record r */
#define DELTA(m)     (COUNT((m) & plus) - COUNT((m) & ~plus))

/* The layout, constant after init. */
byte in_shard[SHARDS];
byte of_parent[PARENTS];
byte plus; /* the records that are INSERTs */

/* The table. */
short tally[PARENTS];
byte mark[PARENTS * SHARDS];
#ifdef ONE_LANE
#define LANE(p, s) ((p) * SHARDS)
#else
#define LANE(p, s) ((p) * SHARDS + (s))
#endif

/* The streams. */
byte acknowledged[SHARDS]; /* the records before the checkpoint */
byte borders[SHARDS];      /* last records of failed batches; with NESTED, no later batch reaches across one */

bool closed; /* the end has come: all acknowledged, nothing under way, no zombie left */

/* The invocations. A slot is busy while its batch is not empty. */
byte shard[SLOTS];
byte batch[SLOTS];
byte todo[SLOTS];    /* being applied */
byte failed[SLOTS];  /* given up: throttled or timed out until the time was up */
byte skipped[SLOTS]; /* of parents whose delta is zero in this batch */

#ifdef FAULTS
byte faults = FAULTS;
#define MAY_FAIL (faults > 0)
#define FAULT    faults--
#else
#define MAY_FAIL true
#define FAULT    skip
#endif

#define ALL_DONE (acknowledged[0] == in_shard[0] && acknowledged[1] == in_shard[1] && \
                  batch[0] == 0 && batch[1] == 0 && batch[ZOMBIE] == 0)

#ifdef STORY
#define TELL(what, i, mask) printf(what, i, mask)
#else
#define TELL(what, i, mask) skip
#endif

/* A denied event: a failed assertion in the variant that denies it, nothing in all others. */
#ifdef NEVER_DROP
#define DROPS assert(false)
#else
#define DROPS skip
#endif
#ifdef NEVER_PART
#define DROPS_IN_PART(rest) assert((rest) == 0)
#else
#define DROPS_IN_PART(rest) skip
#endif
#ifdef NEVER_CUT
#define CUTS assert(false)
#else
#define CUTS skip
#endif
#ifdef NEVER_ZOMBIE
#define ZOMBIE_WRITES(i) assert((i) != ZOMBIE)
#else
#define ZOMBIE_WRITES(i) skip
#endif
#ifdef NEVER_END
#define ENDS assert(false)
#else
#define ENDS skip
#endif

/* The condition of the UpdateItem: the mark lies before the first record, or there is none. */
#ifdef NO_CONDITION
#define CONDITION true
#else
#define CONDITION (mark[lane] < FIRST(records))
#endif

/* One UpdateItem for parent p by slot i (A2), and its answer. When the answer is lost the call has taken effect, but
 * the slot knows nothing new: its next step is the SDK's retry of the same call, or giving up, or a crash. (A failed
 * condition whose answer is lost changes nothing at all.) */
inline update(i, p) {
    records = todo[i] & of_parent[p];
    lane = LANE(p, shard[i]);
    if
    :: CONDITION ->
        ZOMBIE_WRITES(i);
        tally[p] = tally[p] + DELTA(records);
        if
        :: mark[lane] = UP_TO(records); /* the answer arrives */
            TELL("slot %d applies %d\n", i, records);
            todo[i] = todo[i] & ~records
        :: MAY_FAIL ->                  /* the answer is lost */
            FAULT;
            TELL("slot %d applies, the answer is lost: %d\n", i, records);
#ifndef TWO_WRITES
            mark[lane] = UP_TO(records)
#endif
        fi
    :: else -> /* the answer holds the item: drop what is at or below its mark, the rest is the next step */
        DROPS;
        TELL("slot %d is refused: the mark is at %d\n", i, mark[lane]);
        todo[i] = todo[i] & ~(records & mark[lane]);
        DROPS_IN_PART(todo[i] & records)
    fi;
    records = 0;
    lane = 0
}

/* With SKIP_ZERO, before a partial response: the parent's records were skipped because they add up to zero, and they
 * lie on both sides of the cut, so that the second half would come back alone. */
#if defined(SKIP_ZERO) && !defined(NO_ZERO_MARK)
#define MUST_MARK(i, p) ((skipped[i] & of_parent[p] & BEFORE(FIRST(failed[i]))) != 0 && \
                         (skipped[i] & of_parent[p] & ~BEFORE(FIRST(failed[i]))) != 0)
#else
#define MUST_MARK(i, p) false
#endif

#ifdef REPORT_HIGHEST
#define REPORTED(i) LAST(failed[i])
#else
#define REPORTED(i) FIRST(failed[i])
#endif

inline skip_zero(i, p) {
#ifdef SKIP_ZERO
    if
    :: (batch[i] & of_parent[p]) != 0 && DELTA(batch[i] & of_parent[p]) == 0 ->
        skipped[i] = skipped[i] | (batch[i] & of_parent[p])
    :: else -> skip
    fi
#else
    skip
#endif
}

inline forget(i) {
    batch[i] = 0;
    todo[i] = 0;
    failed[i] = 0;
    skipped[i] = 0
}

/* The batch comes back. With NESTED, its end is a border until it is acknowledged. */
inline redeliver(i) {
#ifdef NESTED
    borders[i] = (borders[i] | LAST(batch[i])) & ~acknowledged[i]
#else
    skip
#endif
}

proctype Slot(byte i) {
    byte records, lane, end;

    do
    /* Deliver: a batch of any size from the checkpoint on (A1), which covers batch size, window and bisection alike. */
    :: atomic {
        i != ZOMBIE && batch[i] == 0 && acknowledged[i] != in_shard[i] ->
        if
        :: (in_shard[i] & ~acknowledged[i] & 1) != 0 -> end = 1
        :: (in_shard[i] & ~acknowledged[i] & 2) != 0 -> end = 2
        :: (in_shard[i] & ~acknowledged[i] & 4) != 0 -> end = 4
        :: (in_shard[i] & ~acknowledged[i] & 8) != 0 -> end = 8
        fi;
        batch[i] = in_shard[i] & ~acknowledged[i] & UP_TO(end);
#ifdef NESTED
        if
        :: (borders[i] & BEFORE(end) & batch[i]) != 0 -> batch[i] = batch[i] & UP_TO(FIRST(borders[i]))
        :: else -> skip
        fi;
#endif
        end = 0;
        skip_zero(i, 0);
        skip_zero(i, 1);
        todo[i] = batch[i] & ~skipped[i];
        TELL("slot %d is given the batch %d\n", i, batch[i])
       }

    /* Call: any parent next, so that every order of the pool's threads is covered. */
    :: atomic { (todo[i] & of_parent[0]) != 0 -> update(i, 0) }
    :: atomic { (todo[i] & of_parent[1]) != 0 -> update(i, 1) }

    /* Give a parent up: its records will be reported. Its last call may or may not have taken effect. */
    :: atomic { (todo[i] & of_parent[0]) != 0 && MAY_FAIL ->
        FAULT;
        TELL("slot %d gives up %d\n", i, todo[i] & of_parent[0]);
        failed[i] = failed[i] | (todo[i] & of_parent[0]);
        todo[i] = todo[i] & ~of_parent[0]
       }
    :: atomic { (todo[i] & of_parent[1]) != 0 && MAY_FAIL ->
        FAULT;
        TELL("slot %d gives up %d\n", i, todo[i] & of_parent[1]);
        failed[i] = failed[i] | (todo[i] & of_parent[1]);
        todo[i] = todo[i] & ~of_parent[1]
       }

    /* Crash: at any point, so before and after any effect, and also when all is done but the answer is not out. */
    :: atomic { batch[i] != 0 && MAY_FAIL ->
        FAULT;
        TELL("slot %d dies with the batch %d\n", i, batch[i]);
        if
        :: i != ZOMBIE -> redeliver(i)
        :: else -> skip /* nobody waits for a zombie's answer */
        fi;
        forget(i)
       }

    /* Freeze: Lambda takes the invocation for dead and delivers again, but it lives on in the zombie's slot. */
    :: atomic { i != ZOMBIE && batch[i] != 0 && batch[ZOMBIE] == 0 && MAY_FAIL -> /* (A3) */
        FAULT;
        TELL("slot %d freezes, to wake up as slot 2, with the batch %d\n", i, batch[i]);
        shard[ZOMBIE] = i;
        batch[ZOMBIE] = batch[i];
        todo[ZOMBIE] = todo[i];
        failed[ZOMBIE] = failed[i];
        skipped[ZOMBIE] = skipped[i];
        redeliver(i);
        forget(i)
       }

#ifdef SKIP_ZERO
    /* A delta of zero across the cut gets its mark written. If that fails in turn, its records join the failed ones,
     * which moves the cut down, and the question is asked again. */
    :: atomic { batch[i] != 0 && todo[i] == 0 && failed[i] != 0 && MUST_MARK(i, 0) ->
        todo[i] = skipped[i] & of_parent[0];
        skipped[i] = skipped[i] & ~of_parent[0]
       }
    :: atomic { batch[i] != 0 && todo[i] == 0 && failed[i] != 0 && MUST_MARK(i, 1) ->
        todo[i] = skipped[i] & of_parent[1];
        skipped[i] = skipped[i] & ~of_parent[1]
       }
#endif

    /* Answer: the whole batch, or all before the reported record. */
    :: atomic { batch[i] != 0 && todo[i] == 0 && failed[i] == 0 ->
        TELL("slot %d answers: success of the batch %d\n", i, batch[i]);
        if
        :: i != ZOMBIE ->
            acknowledged[i] = acknowledged[i] | batch[i];
            borders[i] = borders[i] & ~acknowledged[i]
        :: else -> skip
        fi;
        forget(i)
       }
    :: atomic { batch[i] != 0 && todo[i] == 0 && failed[i] != 0 && !MUST_MARK(i, 0) && !MUST_MARK(i, 1) ->
        if
        :: i != ZOMBIE ->
            CUTS;
            TELL("slot %d answers: failed from record %d\n", i, REPORTED(i));
            acknowledged[i] = acknowledged[i] | (batch[i] & BEFORE(REPORTED(i)));
            redeliver(i)
        :: else -> skip
        fi;
        forget(i)
       }

#ifdef REPLAY
    /* The mapping is deleted and created anew: the shard starts again from its oldest record. */
    :: atomic { i != ZOMBIE && batch[i] == 0 && acknowledged[i] != 0 && !closed && MAY_FAIL ->
        FAULT;
        TELL("slot %d starts again after %d\n", i, acknowledged[i]);
        acknowledged[i] = 0
       }
#endif

    :: closed -> break
    od
}

/* Any layout, less what is a mere renaming: shards and parents have no names, and record 1 is an INSERT because a
 * layout with all signs turned behaves alike. Records of shard 0 have the lower sequence numbers. */
init {
    byte r;

    atomic {
        shard[0] = 0;
        shard[1] = 1;
        if
        :: in_shard[0] = 3 /* two and two */
        :: in_shard[0] = 7 /* three and one */
#ifndef UNSPLIT
        :: in_shard[0] = 15 /* all in one */
#endif
        fi;
        in_shard[1] = ALL & ~in_shard[0];
        of_parent[0] = 1;
        plus = 1;
        r = 2;
        do
        :: r <= 8 ->
#ifdef UNSPLIT
            of_parent[0] = in_shard[0];
#else
            if
            :: of_parent[0] = of_parent[0] | r
            :: skip
            fi;
#endif
            if
            :: plus = plus | r
            :: skip
            fi;
            r = r * 2
        :: else -> break
        od;
        r = 0;
        of_parent[1] = ALL & ~of_parent[0];
        TELL("slot %d serves the records %d\n", 0, in_shard[0]);
        TELL("slot %d serves the records %d\n", 1, in_shard[1]);
#ifdef STORY
        printf("parent 0 has %d, parent 1 has %d; INSERTs are %d\n", of_parent[0], of_parent[1], plus);
#endif
        run Slot(0);
        run Slot(1);
        run Slot(ZOMBIE)
    }

    /* The claim. */
    atomic {
        ALL_DONE ->
        closed = true;
        ENDS;
        assert(tally[0] == DELTA(of_parent[0]));
        assert(tally[1] == DELTA(of_parent[1]))
    }
}
