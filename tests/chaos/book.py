"""Every scenario by its name: which invariants it checks, and which tests show it.

The invariants are those of `kit/history.py`, and I7 honest answers, I8 schedules, I9 liveness is
visible, I10 resources are bounded. `tests/house/test_book.py` sees that every test is there,
`tests/chaos/full.py` runs them all with seeds.
"""

from __future__ import annotations

from tests.chaos.scenario import of

CHAOS, ENGINE, STORE = "tests/chaos/", "tests/engine/", "tests/store/"
CRASHES, LEASES = f"{CHAOS}test_crashes.py::", f"{CHAOS}test_leases.py::"
OUTAGES, SCENARIOS = f"{CHAOS}test_outages.py::", f"{CHAOS}test_scenarios.py::"
NETWORK, SERVER = f"{CHAOS}test_network.py::", f"{CHAOS}test_server_faults.py::"
WRITERS, SCHEDULES = f"{CHAOS}test_writers.py::", f"{CHAOS}test_schedules.py::"
FAULTS, CUTS = f"{ENGINE}test_faults.py::", f"{ENGINE}test_cuts.py::"
SAFETY, TORN = f"{STORE}test_crash_safety.py::", f"{STORE}test_torn_file.py::"
SENTINELS, CLUSTERS = "tests/ha/test_sentinel.py::", "tests/ha/test_cluster.py::"
APART, DOORS = "tests/ha/test_apart.py::", "tests/ha/test_doors.py::"


WORKER = of(
    "worker",
    (
        "kill9_mid_handler",
        (1, 2, 3, 4, 5, 6),
        (f"{SCENARIOS}test_kill_9_in_the_middle_of_handlers",),
    ),
    (
        "kill9_between_handler_and_ack",
        (1, 2, 3, 4, 5, 6),
        (f"{SCENARIOS}test_kill_9_between_handler_and_ack",),
    ),
    (
        "kill9_among_retries_and_burials",
        (1, 2, 3, 4, 5, 6),
        (f"{SCENARIOS}test_kill_9_of_those_who_promote_retry_and_bury",),
    ),
    (
        "sigstop_worker_past_lease",
        (1, 4, 5, 6),
        (
            f"{LEASES}test_a_stopped_worker_wakes_up_and_nothing_of_its_outcome_counts",
            f"{LEASES}test_a_success_that_comes_too_late_is_not_acked_over_the_heirs_head",
        ),
    ),
    (
        "gil_hog",
        (1, 3, 4, 6),
        (f"{LEASES}test_a_handler_that_keeps_the_event_loop_or_the_interpreter_keeps_its_lease",),
    ),
    (
        "slow_handler_10x_lease",
        (1, 3, 4, 6),
        (f"{LEASES}test_a_handler_ten_times_longer_than_its_lease_runs_once",),
    ),
    (
        "prefetch_backlog",
        (1, 3, 4, 6),
        (
            f"{NETWORK}test_jobs_read_ahead_keep_their_lease_while_they_wait_for_a_place",
            f"{CHAOS}test_stops.py::test_a_thousand_jobs_read_ahead_are_given_back_at_once",
        ),
    ),
    (
        "poison_with_innocents",
        (1, 3, 5, 6),
        (f"{CRASHES}test_a_job_that_kills_its_worker_is_buried_and_its_neighbours_are_not",),
    ),
    (
        "crash_loop_exact_attempts",
        (1, 3, 5, 6),
        (
            f"{CRASHES}test_a_worker_with_a_lasting_name_goes_on_at_once"
            "_and_a_crash_loop_still_ends",
            f"{CRASHES}test_a_job_that_fails_and_then_kills_has_its_attempts_and_no_more",
            f"{ENGINE}test_recover.py::test_deliveries_that_crashed_are_charged_exactly",
        ),
    ),
    (
        "sigterm_under_load",
        (1, 2, 3, 4, 6, 10),
        (f"{SCENARIOS}test_sigterm_under_load_loses_nothing_and_doubles_nothing",),
    ),
    (
        "consumer_churn_1000",
        (1, 5, 6, 10),
        (f"{NETWORK}test_names_of_a_thousand_consumers_go_and_what_they_held_is_run",),
    ),
)

REDIS = of(
    "redis",
    (
        "redis_kill9_restart",
        (1, 2, 3, 4, 5, 6),
        (
            f"{SCENARIOS}test_the_server_is_killed_and_comes_back_under_load",
            f"{SERVER}test_a_server_that_syncs_each_second_loses_nothing_to_kill_9",
        ),
    ),
    (
        "redis_down_longer_than_lease",
        (1, 3, 4, 6),
        (f"{SCENARIOS}test_a_server_away_for_longer_than_the_lease_costs_no_second_run",),
    ),
    (
        "busy_reader_misses_outage",
        (1, 3, 4, 6),
        (f"{OUTAGES}test_a_claim_that_was_on_its_way_when_the_server_froze_takes_nothing",),
    ),
    (
        "aof_tail_truncated",
        (1, 6),
        (f"{SERVER}test_a_torn_end_of_the_append_only_file_costs_its_last_command_only",),
    ),
    (
        "deliveries_forgotten",
        (1, 5, 6),
        (f"{SERVER}test_a_server_that_forgot_deliveries_makes_them_anew_and_one_run_counts",),
    ),
    (
        "aof_torn_inside_a_script",
        (1,),
        (
            f"{TORN}test_a_torn_transaction_costs_nothing_once_the_file_is_rewritten",
            f"{TORN}test_without_a_rewrite_redis_may_run_half_of_it_twice_but_loses_nothing",
            f"{TORN}test_redis_may_forget_what_was_added_after_a_torn_transaction",
            f"{TORN}test_a_torn_delivery_is_made_anew_and_leaves_nothing_behind",
        ),
    ),
    (
        "loading_window",
        (1, 3, 6),
        (
            f"{SERVER}test_a_server_that_loads_for_longer_than_a_lease_costs_no_second_run",
            f"{STORE}test_fault.py::test_a_server_that_loads_its_data_is_away",
        ),
    ),
    (
        "oom_drain_recovers",
        (1, 3, 6, 7),
        (f"{FAULTS}test_a_server_out_of_memory_refuses_adds_and_goes_on_draining",),
    ),
    ("flushall_recovers", (6,), (f"{FAULTS}test_flushall_is_survived",)),
    (
        "del_stream",
        (6,),
        (
            f"{FAULTS}test_a_deleted_stream_is_created_again_with_its_settings",
            f"{FAULTS}test_a_destroyed_group_is_created_again_and_misses_nothing",
        ),
    ),
    (
        "script_flush_storm",
        (1, 2, 3, 4, 6),
        (
            f"{SCENARIOS}test_scripts_flushed_and_connections_killed_all_the_time",
            f"{STORE}test_link.py::test_every_verb_survives_a_script_flush",
        ),
    ),
    (
        "busy_script",
        (1, 3, 4, 6),
        (f"{SERVER}test_a_server_busy_with_a_script_costs_no_second_run",),
    ),
    (
        "readonly_flip",
        (1, 3, 4, 6),
        (f"{SERVER}test_a_server_that_turns_into_a_replica_and_back_costs_no_second_run",),
    ),
    (
        "evict_policy_refused",
        (1, 7),
        (f"{STORE}test_dialect.py::test_a_server_that_evicts_any_key_is_refused",),
    ),
    (
        "debug_sleep_10s",
        (1, 3, 4, 6),
        (f"{SERVER}test_a_server_that_sleeps_past_the_lease_costs_no_second_run",),
    ),
    (
        "task_death_is_visible",
        (1, 9),
        (
            f"{CHAOS}test_health.py::test_a_loop_that_dies_ends_the_run_and_is_told",
            f"{CHAOS}test_health.py::test_a_server_that_freezes_or_dies_is_seen"
            "_and_so_is_its_return",
        ),
    ),
)

NET = of(
    "network",
    ("reply_cut_every_command", (1, 3, 6, 7), (f"{CUTS}test_every_kth_reply_is_cut",)),
    ("cut_xreadgroup_reply", (1, 3, 6), (f"{CUTS}test_the_replies_of_one_command_are_cut",)),
    (
        "blackhole_60s",
        (1, 3, 4, 6),
        (
            f"{OUTAGES}test_a_network_that_is_away_for_two_leases_costs_no_second_run",
            f"{STORE}test_link.py::test_a_half_open_connection_is_given_up_and_replaced",
        ),
    ),
    (
        "rst_storm",
        (1, 2, 3, 4, 6),
        (f"{NETWORK}test_resets_of_all_connections_in_a_row_lose_and_double_nothing",),
    ),
    (
        "latency_0_200ms",
        (1, 3, 4, 6),
        (f"{NETWORK}test_a_slow_network_costs_no_lease_and_no_second_run",),
    ),
    (
        "heartbeat_blackhole",
        (1, 4, 9),
        (f"{LEASES}test_a_worker_whose_renewals_alone_are_lost_loses_its_job_and_learns_of_it",),
    ),
    (
        "events_backpressure",
        (1, 3, 6, 10),
        (
            f"{WRITERS}test_events_that_pile_up_are_dropped"
            "_and_acks_land_when_the_writer_flows_again",
            f"{WRITERS}test_events_that_are_refused_delay_no_ack",
        ),
    ),
    (
        "server_frozen_past_lease",
        (1, 3, 4, 6),
        (f"{OUTAGES}test_a_server_frozen_for_two_leases_costs_no_second_run",),
    ),
)

HA = of(
    "high availability",
    (
        "partition_then_promote",
        (1, 7),
        (
            "tests/ha/test_partitions.py::test_what_a_replica_confirmed_outlives_a_partition"
            "_and_the_rest_is_seen_to_be_lost",
            f"{ENGINE}test_durability_faults.py::"
            "test_every_confirmed_job_is_on_the_replica_that_takes_over",
        ),
    ),
    (
        "sentinel_failover",
        (1, 2, 6, 7, 8),
        (
            f"{SENTINELS}test_a_master_is_killed_and_comes_back",
            f"{SENTINELS}test_a_switch_by_hand_loses_and_doubles_nothing",
            f"{APART}test_a_master_that_its_sentinels_gave_up_is_left",
            f"{DOORS}test_what_waits_for_its_time_outlives_a_failover",
        ),
    ),
    (
        "old_master_returns",
        (1, 7),
        (
            f"{DOORS}test_no_door_writes_to_an_old_master_that_came_back",
            f"{SENTINELS}test_a_server_that_is_a_replica_by_now_is_not_written_to",
        ),
    ),
    (
        "cluster_failover",
        (1, 2, 6, 7, 8),
        (
            f"{CLUSTERS}test_a_master_is_killed",
            f"{APART}test_a_node_cut_off_from_its_cluster_is_left",
            f"{DOORS}test_what_waits_for_its_time_outlives_a_failover",
        ),
    ),
    (
        "slot_migration_live",
        (1, 2, 3, 6, 7),
        (
            f"{CLUSTERS}test_a_slot_moves_while_jobs_run",
            f"{CLUSTERS}test_durable_adds_wait_while_a_slot_moves",
            "tests/ha/test_halves.py::test_a_job_that_is_due_waits_for_what_says_that_it_is_unique",
        ),
    ),
)

TIME = of(
    "time, leaders",
    (
        "sigstop_leader",
        (8,),
        (f"{SCHEDULES}test_every_window_fires_once_while_leaders_are_stopped_and_killed",),
    ),
    (
        "two_leaders_forced",
        (8,),
        (
            f"{SCHEDULES}test_every_window_fires_once_though_two_processes_go_by_one_name",
            f"{ENGINE}test_scheduler_race.py::test_two_that_both_believe_they_lead_fire_once",
        ),
    ),
    (
        "remove_while_firing",
        (8,),
        (
            f"{ENGINE}test_scheduler_race.py::"
            "test_a_spec_that_is_removed_meanwhile_leaves_no_job_and_no_key",
        ),
    ),
    (
        "faketime_1h",
        (1, 8),
        (f"{NETWORK}test_a_producer_an_hour_off_delays_by_the_server_s_clock",),
    ),
)

SCRIPTS = of(
    "scripts",
    (
        "script_fault_injection",
        (1,),
        (f"{SAFETY}test_a_script_that_breaks_off_anywhere_loses_nothing",),
    ),
    (
        "wrongtype_relocation",
        (1, 6),
        (
            f"{SAFETY}test_a_destination_of_another_type_refuses_and_the_jobs_stay",
            f"{FAULTS}test_a_destination_of_the_wrong_type_keeps_the_job",
        ),
    ),
    ("oom_relocation", (1,), (f"{SAFETY}test_a_server_without_memory_refuses_and_the_jobs_stay",)),
    (
        "acl_denied_dlq",
        (1,),
        (f"{SAFETY}test_a_destination_that_we_may_not_write_refuses_and_the_jobs_stay",),
    ),
    (
        "poison_zset_member",
        (1, 6),
        (
            f"{STORE}test_promote.py::"
            "test_poison_goes_to_the_dlq_with_its_bytes_and_promotion_goes_on",
            f"{ENGINE}test_promote.py::test_unreadable_members_are_buried_and_the_rest_goes_on",
        ),
    ),
    (
        "replay_past_garbage",
        (6,),
        (f"{ENGINE}test_dlq.py::test_replay_passes_what_cannot_be_read",),
    ),
)

DATA = of(
    "data",
    (
        "trim_never_loses",
        (1,),
        (
            f"{ENGINE}test_add.py::test_trimming_happens_only_when_asked_for",
            f"{ENGINE}test_dlq.py::test_the_dlq_is_trimmed_only_when_asked_for",
        ),
    ),
    (
        "queue_full_is_definite",
        (2, 7),
        (f"{ENGINE}test_add.py::test_a_full_queue_refuses_and_keeps_what_it_has",),
    ),
    (
        "bulk_retry_10k",
        (1, 2, 7),
        (
            f"{NETWORK}test_a_bulk_of_ten_thousand_whose_answers_are_cut_comes_in_once",
            f"{CUTS}test_a_line_that_breaks_within_every_write_still_lets_a_bulk_through",
            f"{CUTS}test_what_goes_again_goes_in_its_order_and_the_server_still_knows_it",
            f"{ENGINE}test_crowd.py::test_never_more_go_out_than_the_server_remembers",
        ),
    ),
    (
        "xcfgset_race",
        (7,),
        (
            f"{STORE}test_open_stream.py::test_creators_at_the_same_time_agree",
            f"{STORE}test_open_stream.py::test_ids_that_a_live_stream_remembers_stay_remembered",
        ),
    ),
    (
        "aofrw_no_preamble",
        (1, 3, 6),
        (f"{SERVER}test_a_rewritten_append_only_file_keeps_jobs_groups_and_what_is_pending",),
    ),
    (
        "golden_vectors",
        (1,),
        ("tests/vectors/test_wire_vectors.py::test_an_entry_packs_to_the_recorded_bytes",),
    ),
    ("name_256", (1, 7), ("tests/unit/wire/test_wire_entry.py::test_a_name_is_measured_in_bytes",)),
)

BOOK = [*WORKER, *REDIS, *NET, *HA, *TIME, *SCRIPTS, *DATA]
