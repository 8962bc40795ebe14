"""The list of planted faults: in which world each is found, and within how many games."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from tests.fakes.simulation import planted
from tests.fakes.simulation import planted_alone as alone
from tests.fakes.simulation.alone import Alone
from tests.fakes.simulation.game import Game
from tests.fakes.simulation.world import World


class Mutant(NamedTuple):
    """A planted fault."""

    plant: Callable[[], AbstractContextManager[Any]]
    world: type[Game]
    seeds: int  # in one of so many games it is found

    @property
    def name(self) -> str:
        return f"{self.plant.__name__}-{self.world.__name__.lower()}"


MUTANTS = [
    # the cluster
    Mutant(planted.without_fence, World, 30),
    Mutant(planted.fenced_before, World, 30),
    Mutant(planted.shared_lock, World, 200),
    Mutant(planted.trust_by_wall_clock, World, 60),
    Mutant(planted.no_trust, World, 30),
    Mutant(planted.taking_from_the_living, World, 10),
    Mutant(planted.giving_beside_the_queue, World, 5),
    Mutant(planted.beginning_what_is_in_doubt, World, 5),
    Mutant(planted.skipping_in_silence, World, 5),
    # the scheduler
    Mutant(planted.skipping_in_silence, Alone, 10),
    Mutant(alone.keeping_a_refused_cursor, Alone, 10),
    Mutant(alone.starting_what_is_paused, Alone, 10),
    Mutant(alone.starting_early, Alone, 60),
    Mutant(alone.not_looking_at_the_clock, Alone, 30),
    # schedules
    Mutant(alone.forgetting_an_absence, Alone, 60),
    Mutant(alone.forgetting_what_was_due_before_an_edit, Alone, 30),
    Mutant(alone.recording_what_runs_as_missed, Alone, 5),
    Mutant(alone.without_summer_time, Alone, 10),
    # runs
    Mutant(alone.not_taking_up_runs, Alone, 5),
    Mutant(alone.committing_what_follows_later, Alone, 5),
    Mutant(alone.beginning_before_the_commit, Alone, 5),
    Mutant(alone.overlapping, Alone, 10),
    Mutant(alone.retrying_for_ever, Alone, 5),
    Mutant(alone.not_beginning_again, Alone, 30),
    Mutant(alone.a_second_queue_for_a_job_that_comes_back, Alone, 100),
    # the store
    Mutant(alone.moving_cursors_in_a_commit_of_their_own, Alone, 5),
    Mutant(alone.answering_before_the_commit, Alone, 10),
    Mutant(alone.overlooking_a_rollback, Alone, 150),
    # the outbox
    Mutant(alone.deleting_before_delivery, Alone, 10),
    Mutant(alone.forgetting_an_attempt, Alone, 300),
    Mutant(alone.passing_what_waits, Alone, 30),
    Mutant(alone.a_new_id_for_each_attempt, Alone, 30),
    # incidents
    Mutant(alone.counting_what_is_retried, Alone, 5),
    Mutant(alone.noting_incidents_later, Alone, 5),
    Mutant(alone.forgetting_who_was_notified, Alone, 10),
    Mutant(alone.notifying_nobody, Alone, 10),
    Mutant(alone.calling_hooks_again, Alone, 5),
    # locks
    Mutant(alone.leases_of_the_living_end, Alone, 5),
    Mutant(alone.freeing_locks_of_the_dead, Alone, 30),
    # changes
    Mutant(alone.handing_out_a_change_again, Alone, 5),
    Mutant(alone.the_latest_change_first, Alone, 30),
    # tasks
    Mutant(alone.performing_all_tasks_again, Alone, 10),
    Mutant(alone.losing_what_a_task_has_ended, Alone, 30),
]
