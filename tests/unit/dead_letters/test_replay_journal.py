"""The journal of replays knows what was sent, and what may have been."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from asyncrevoke import TopicPartition
from asyncrevoke.dead_letters.errors import DeadLettersError
from asyncrevoke.dead_letters.replay_journal import ReplayJournal

if TYPE_CHECKING:
    from pathlib import Path


def test_the_journal_knows_what_was_sent_and_what_may_have_been(tmp_path: Path) -> None:
    path, to = tmp_path / "j", TopicPartition("orders", 1)
    with ReplayJournal(path, "dlq") as journal:
        journal.sending([(0, 5), (0, 6), (1, 0), (0, 7)])
        journal.ended([(1, 0, to, 9), (0, 5, to, -1)], [(0, 6)])
        with pytest.raises(DeadLettersError, match="another replay"), ReplayJournal(path, "dlq"):
            raise AssertionError
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with path.open("ab") as file:
        file.write(b'{"line":"sent","partition":0,"off')  # torn by a crash
    for _ in range(2):
        with ReplayJournal(path, "dlq") as journal:
            assert journal.has_sent(0, 5)
            assert journal.has_sent(1, 0)
            assert not journal.has_sent(0, 6)
            assert not journal.is_in_doubt(0, 6)
            assert journal.is_in_doubt(0, 7)
            assert journal.highest(0) == 7
            assert journal.highest(2) == -1


def test_the_journal_knows_the_ends_of_transactions_and_which_have_none(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with ReplayJournal(path, "dlq") as journal:
        assert journal.transactional_id is None
        journal.begin_transactions("replay-1")
        assert journal.begin_transaction() == 1
        journal.transaction_ended(1, committed=True)
        for number, committed in (2, True), (3, False):
            assert journal.begin_transaction([(0, number), (1, 10 * number)]) == number
            journal.transaction_ended(number, committed=committed)
        assert journal.begin_transaction([(0, 4), (0, 1), (2, 0)]) == 4
    for _ in range(2):
        with ReplayJournal(path, "dlq") as journal:
            assert journal.transactional_id == "replay-1"
            assert (journal.has_sent(0, 2), journal.has_sent(1, 20)) == (True, True)
            assert not journal.has_sent(0, 3)
            assert not journal.is_in_doubt(0, 3)
            assert journal.is_in_doubt(0, 4)
            assert journal.is_in_transaction(0, 4)
            assert journal.unended_transactions() == {4: {0, 2}}
    with ReplayJournal(path, "dlq") as journal:
        journal.transaction_ended(4, committed=True)
        assert [journal.has_sent(0, offset) for offset in (1, 2, 3, 4)] == [True, True, False, True]
        assert not journal.is_in_doubt(0, 4)
    with ReplayJournal(path, "dlq") as journal:
        assert journal.has_sent(2, 0)
        assert journal.begin_transaction([(0, 9)]) == 5
        journal.transaction_unknown(5)
        assert journal.unended_transactions() == {}
    with ReplayJournal(path, "dlq") as journal:
        assert journal.is_in_doubt(0, 9)
        assert not journal.is_in_transaction(0, 9)
        assert journal.begin_transaction() == 6


def test_dead_letters_that_are_sent_again_are_of_the_later_replay(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with ReplayJournal(path, "dlq") as journal:
        journal.begin_transactions("replay-1")
        journal.begin_transaction([(0, 1), (0, 2)])
        journal.sending([(0, 1)])
    with ReplayJournal(path, "dlq") as journal:
        journal.transaction_ended(1, committed=False)
    with ReplayJournal(path, "dlq") as journal:
        assert journal.is_in_doubt(0, 1)
        assert not journal.is_in_doubt(0, 2)


@pytest.mark.parametrize(
    "content",
    [
        b"no json\n",
        b'{"line":"sent"}\n',
        b"[1]\n",
        b"x" * 2_000_000,
        b'{"line":"replay","version":1,"dead_letters":"dlq"}\n'
        b'{"line":"sent","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    ],
    ids=["text", "no first line", "list", "long", "nested"],
)
def test_a_file_that_is_no_journal_is_rejected_and_not_changed(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "j"
    path.write_bytes(content)
    with pytest.raises(DeadLettersError, match="not a journal of"), ReplayJournal(path, "dlq"):
        raise AssertionError
    assert path.read_bytes() == content


def test_the_journal_of_another_topic_is_rejected(tmp_path: Path) -> None:
    with ReplayJournal(tmp_path / "j", "dlq"):
        pass
    with (
        pytest.raises(DeadLettersError, match="is the journal of dlq, not of other"),
        ReplayJournal(tmp_path / "j", "other"),
    ):
        raise AssertionError


def test_a_short_file_without_a_line_break_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"a secret on one line")
    with pytest.raises(DeadLettersError, match="not a journal of"), ReplayJournal(path, "dlq"):
        pass
    assert path.read_bytes() == b"a secret on one line"


def test_a_journal_whose_first_line_was_cut_by_a_crash_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with ReplayJournal(path, "dlq"):
        pass
    begun = path.read_bytes()
    path.write_bytes(begun[:9])
    with ReplayJournal(path, "dlq"):
        pass
    assert path.read_bytes() == begun


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="needs symbolic links of POSIX")
def test_the_journal_of_a_replay_is_not_opened_through_a_link(tmp_path: Path) -> None:
    path, other = tmp_path / "j", tmp_path / "other"
    other.touch()
    path.symlink_to(other)
    with pytest.raises(DeadLettersError), ReplayJournal(path, "dlq"):
        pass
    assert other.read_bytes() == b""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.timeout(20)
def test_a_pipe_is_no_journal_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "j")
    with (
        pytest.raises(DeadLettersError, match="is not a regular file"),
        ReplayJournal(tmp_path / "j", "dlq"),
    ):
        raise AssertionError


def test_an_offset_that_no_record_has_is_damage_of_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with ReplayJournal(path, "dlq"):
        pass
    with path.open("ab") as file:
        file.write(b'{"line":"not sent","partition":0,"offset":-1}\n')
    with pytest.raises(DeadLettersError, match="damaged at byte"), ReplayJournal(path, "dlq"):
        pass
