"""All paths of the small worlds with one deviation keep every invariant."""

import dataclasses
import subprocess

import pytest
from simulation.command import COMMAND, command_environment
from simulation.explorer.exploration import Limits, explore, run_path
from simulation.explorer.path import Choice, Deviation, Path
from simulation.explorer.small_worlds import WORLDS, SmallWorld
from simulation.share.explored_share import SHARE_WORLD

# The default run has each protocol once, and transactions once.
_DEFAULT = ("kip848", "classic-transactions")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "world",
    [
        pytest.param(world, id=name, marks=[] if name in _DEFAULT else [pytest.mark.variant])
        for name, world in WORLDS.items()
    ],
)
def test_all_paths_with_one_deviation_keep_every_invariant(world: SmallWorld) -> None:
    # `tox -e explore` lets something wait for more events as well.
    bounds = dataclasses.replace(world.bounds, longest_wait=1)
    usual, one = explore(dataclasses.replace(world, bounds=bounds), 1)
    assert one.failed is None, f"{one.failed.path}: {one.failed.run.failure}"
    assert (usual.paths, one.left) == (1, 0)
    # It would prove nothing if little could happen.
    assert one.deviations.keys() == {deviation.value for deviation in Deviation}
    assert one.paths > 200


@pytest.mark.parametrize("world", [WORLDS[name] for name in _DEFAULT], ids=_DEFAULT)
def test_a_path_always_runs_in_the_same_way(world: SmallWorld) -> None:
    usual = run_path(world, Path())
    for choice in usual.further[:: len(usual.further) // 8]:
        first, again = (run_path(world, Path((choice,))) for _ in range(2))
        assert first == again


def test_a_path_that_a_world_does_not_have_is_an_error() -> None:
    world = WORLDS["classic"]
    possible = {(each.point, each.deviation) for each in run_path(world, Path()).further}
    assert (0, Deviation.CRASH) not in possible
    for text in ("0:crash", "100000:wait:1"):
        with pytest.raises(ValueError, match=f"classic has no choice {text}"):
            run_path(world, Path.parse(text))


def test_a_path_is_what_its_text_says() -> None:
    path = Path((Choice(3, Deviation.WAIT, 2), Choice(40, Deviation.CRASH)))
    assert Path.parse(str(path)) == path
    assert Path.parse(str(Path())) == Path()
    for wrong in ("3", "3:none", "40:crash,3:wait:2"):
        with pytest.raises(ValueError, match=r"not|ascend"):
            Path.parse(wrong)


def test_a_wait_becomes_longer_until_it_is_as_long_as_allowed() -> None:
    world = WORLDS["classic"]
    waits = [each for each in run_path(world, Path()).further if each.deviation is Deviation.WAIT]
    path, amounts = Path((waits[0],)), [waits[0].amount]
    while (longer := run_path(world, path).longer_wait) is not None:
        path = path.then(longer)
        amounts.append(longer.amount)
    assert amounts == list(range(1, world.bounds.longest_wait + 1))
    assert len(path.choices) == 1


def test_two_processes_run_the_same_paths_as_one() -> None:
    limits = Limits(paths=12)
    one, two = (
        [
            (level.paths, level.left, level.alarms)
            for level in explore(WORLDS["kip848"], 1, limits, processes=processes)
        ]
        for processes in (1, 2)
    )
    assert one == two
    assert sum(paths for paths, _, _ in one) == 12


def test_the_command_prints_what_was_explored_and_the_path_that_failed_can_be_run_again() -> None:
    def command(*options: str) -> str:
        done = subprocess.run(
            [*COMMAND, "explore", "--world", "kip848", *options],
            capture_output=True,
            text=True,
            check=False,
            env=command_environment(),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    lines = command("--depth", "1", "--paths", "5").splitlines()
    assert lines[0] == (
        "kip848: consumer, 2 members, 3 partitions, 4 records; waits for at most 3 events"
    )
    assert lines[1].startswith("  depth 0: 1 paths (all)")
    assert lines[2].startswith("  depth 1: 4 paths (")
    assert command("--path", "0:lost_before") == "no invariant is broken\n"


def test_all_paths_of_one_early_deviation_of_a_share_group_keep_every_invariant() -> None:
    bounds = dataclasses.replace(SHARE_WORLD.bounds, end=SHARE_WORLD.bounds.begin + 0.3)
    world = dataclasses.replace(SHARE_WORLD, bounds=bounds)
    levels = list(explore(world, 1))
    assert [level.failed for level in levels] == [None, None]
    assert levels[1].paths > 20
    assert levels[1].left == 0
