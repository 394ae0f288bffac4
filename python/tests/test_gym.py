"""Environments for learning schedulers. Rewards are worked out by hand: on a link of 8 Mbit/s a
packet of 1000 bytes takes a millisecond."""

import numpy as np
import pytest

import altq

pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env  # noqa: E402

from altq.gym import FEATURES, LinkEnv, Traffic, VectorEnv, default_traffic  # noqa: E402

TWO = altq.Policy(
    "link wan { rate 8Mbit/s scheduler cbq class a { share 25% borrow default } class b { share 75% borrow } }"
)
ONE = altq.Policy("link wan { rate 8Mbit/s scheduler fifo class a { default queue drop_tail { limit 1packets } } }")


@pytest.mark.filterwarnings("ignore:.*infinity.*")
@pytest.mark.filterwarnings("ignore:.*render_modes.*")
@pytest.mark.filterwarnings("ignore:.*spec.*")
def test_gymnasium_accepts_it():
    check_env(LinkEnv(TWO, steps=50))


def test_the_default_traffic_offers_95_percent():
    # A quarter and three quarters of 95 % of 8 Mbit/s.
    assert default_traffic(TWO) == {"a": Traffic(1_900_000), "b": Traffic(5_700_000)}


def test_a_step_costs_what_waits():
    # Twice what the link carries: a packet each half millisecond, and a millisecond for each.
    wide = altq.Policy("link wan { rate 8Mbit/s scheduler fifo class a { default } }")
    env = LinkEnv(wide, traffic={"a": Traffic(16_000_000, 1000, "constant")}, steps=3)
    seen, info = env.reset(seed=1)
    assert seen.shape == (1, len(FEATURES)) and seen.dtype == np.float32
    # The episode begins with the first arrival, which has not waited.
    assert seen.tolist() == [[1, 1000, 0, 0, 0]] and info["action_mask"].tolist() == [1]
    # Step 1: a packet arrives in its middle, and waits half a millisecond. Step 2: that packet is
    # sent; one arrives at its beginning, one in its middle. Step 3: one more waits all the time.
    expected = [(-0.5, False, 1, 0.5), (-1.5, False, 2, 1.0), (-2.5, True, 3, 1.5)]
    for reward, over, packets, oldest in expected:
        seen, got, terminated, truncated, _ = env.step(0)
        assert got == pytest.approx(reward) and (terminated, truncated) == (False, over)
        assert seen[0].tolist() == pytest.approx([packets, 1000 * packets, oldest, 1000, 0])
    assert env.counters() == {
        "a": {"arrived_packets": 6, "sent_packets": 3, "dropped_packets": 0, "sent_bytes": 3000}
    }


def test_a_drop_costs_at_once():
    traffic = {"a": Traffic(16_000_000, 1000, "constant")}
    env = LinkEnv(ONE, traffic=traffic, weights={"a": 2.0}, drop_cost=10.0)
    env.reset(seed=1)
    assert env.step(0)[1] == pytest.approx(2 * -0.5)
    # One packet waits all the time, and the one in the middle of the step finds the queue full.
    seen, reward, *_ = env.step(0)
    assert reward == pytest.approx(2 * (-1.0 - 10.0))
    assert seen[0].tolist() == pytest.approx([1, 1000, 1.0, 1000, 1])


def test_a_class_without_packets_waits_for_the_next():
    env = LinkEnv(TWO, traffic={"a": Traffic(1_000_000, 1000, "constant")})
    _, info = env.reset(seed=5)
    assert info["action_mask"].tolist() == [1, 0] and env.classes == ["a", "b"]
    begin = env.now_ns
    # A packet each 8 ms: the first waits until the second arrives, and a nanosecond more.
    seen, reward, *_ = env.step(1)
    assert env.now_ns - begin == 8_000_001 and reward == pytest.approx(-8.0, abs=1e-5)
    assert seen[:, 0].tolist() == [2, 0] and seen[:, 3].tolist() == [0, 0]


def test_seeds_give_traffic_whatever_the_actions_are():
    totals = []
    for action in [0, 1]:
        env = LinkEnv(TWO, steps=2000)
        env.reset(seed=3)
        rewards = [env.step(action)[1] for _ in range(500)]
        totals.append((env.now_ns, sum(rewards)))
    env.reset(seed=3)
    assert sum(env.step(1)[1] for _ in range(500)) == totals[1][1]
    assert totals[0] != totals[1]


def test_sending_what_costs_more_is_better():
    # Of classes with packets of one length, to send the one whose waiting costs most is the best
    # that can be done.
    def total(best):
        env = LinkEnv(TWO, weights={"a": 10.0, "b": 1.0}, steps=3000)
        _, info = env.reset(seed=1)
        sum_ = 0.0
        for _ in range(3000):
            first, second = (0, 1) if best else (1, 0)
            seen, reward, _, _, info = env.step(first if info["action_mask"][first] else second)
            sum_ += reward
        return sum_

    assert total(True) > total(False)


def test_many_at_once_are_one_each():
    many = VectorEnv(TWO, 3, steps=40)
    ones = [LinkEnv(TWO, steps=40) for _ in range(3)]
    seen, info = many.reset(seed=10)
    for at, one in enumerate(ones):
        first, mask = one.reset(seed=10 + at)
        assert np.array_equal(seen[at], first) and np.array_equal(info["action_mask"][at], mask["action_mask"])
    random = np.random.default_rng(0)
    for _ in range(40):
        actions = random.integers(0, 2, 3)
        seen, rewards, terminated, truncated, info = many.step(actions)
        for at, one in enumerate(ones):
            own = one.step(int(actions[at]))
            assert np.array_equal(seen[at], own[0]) and rewards[at] == own[1] and truncated[at] == own[3]
            assert np.array_equal(info["action_mask"][at], own[4]["action_mask"])
        assert not terminated.any()
    assert truncated.all() and many.counters(2) == ones[2].counters()
    # The next step begins other episodes, whatever the actions are.
    seen, rewards, _, truncated, _ = many.step(actions)
    assert rewards.tolist() == [0, 0, 0] and not truncated.any()
    fresh, _ = LinkEnv(TWO).reset(seed=10 + 3)
    assert np.array_equal(seen[0], fresh)


def test_many_at_once_fit_their_spaces():
    many = VectorEnv(TWO, 4)
    many.reset()
    seen, *_ = many.step(many.action_space.sample())
    assert many.observation_space.contains(seen)


def test_on_and_off():
    env = LinkEnv(TWO, traffic={"a": Traffic(4_000_000, 1000, "onoff", 10_000_000, 10_000_000)}, steps=20_000)
    env.reset(seed=2)
    for _ in range(15_000):
        env.step(0)
    # Half of the time on: about 2 Mbit/s, within 10 %.
    sent = env.counters()["a"]["sent_bytes"]
    assert sent * 8e9 / env.now_ns == pytest.approx(2_000_000, rel=0.1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"traffic": {"c": Traffic(1)}}, 'no class "c" has packets of its own; classes: a, b'),
        ({"traffic": {}}, "no class has traffic"),
        ({"traffic": {"a": Traffic(0)}}, "rate_bit_s is at least 1"),
        ({"traffic": {"a": Traffic(1, 0)}}, "1 to 65535 bytes"),
        ({"traffic": {"a": Traffic(1, 1, "pareto")}}, "poisson, constant or onoff"),
        ({"traffic": {"a": Traffic(1, 1, "onoff")}}, "on_ns and off_ns"),
        ({"traffic": {"a": Traffic(8000, 1000, "onoff", 999_999_999, 1)}}, "a packet each 1000000000 ns"),
        ({"weights": {"a": -1.0}}, "the weight of a"),
        ({"drop_cost": float("nan")}, "drop_cost"),
        ({"steps": 0}, "at least one class"),
    ],
)
def test_wrong_words(options, said):
    with pytest.raises(ValueError, match=said):
        LinkEnv(TWO, **options)


def test_wrong_actions():
    env = LinkEnv(TWO)
    env.reset(seed=1)
    with pytest.raises(ValueError, match="not one of 0 to 1"):
        env.step(2)
    many = VectorEnv(TWO, 2)
    many.reset(seed=1)
    with pytest.raises(ValueError, match="not one of 0 to 1"):
        many.step(np.array([0, -1]))
    with pytest.raises(ValueError, match="3 actions for 2"):
        many.step(np.array([0, 0, 0]))
    with pytest.raises(TypeError, match="float64"):
        many.step(np.array([1.9, 0.7]))


def test_actions_may_be_a_column_of_records():
    many, plain = VectorEnv(TWO, 3), VectorEnv(TWO, 3)
    many.reset(seed=1)
    plain.reset(seed=1)
    records = np.zeros(3, dtype=[("action", "<i8"), ("note", "u1")])
    records["action"] = [1, 0, 1]
    assert np.array_equal(many.step(records["action"])[0], plain.step(np.array([1, 0, 1]))[0])
    # Small whole numbers do as well.
    assert np.array_equal(many.step(np.array([0, 1, 1], np.uint8))[0], plain.step(np.array([0, 1, 1]))[0])


@pytest.mark.parametrize("make", [LinkEnv, lambda *args, **words: VectorEnv(*args, 2, **words)])
def test_a_queue_without_room_for_a_packet_is_refused(make):
    def policy(limit):
        return altq.Policy(
            f"link l {{ rate 8Mbit/s scheduler priq class a {{ priority 1 default queue drop_tail {{ limit {limit} }} }} }}"
        )

    traffic = {"a": Traffic(1_000_000, 1500)}
    with pytest.raises(ValueError, match="traffic of a: its queue drops each packet of 1500 bytes"):
        make(policy("1000bytes"), traffic=traffic)
    make(policy("1500bytes"), traffic=traffic)
