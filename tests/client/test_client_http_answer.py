"""Reader of one answer: what stays in memory."""

from __future__ import annotations

import gc

from kubesched.client.http_answer import AnswerReader

_ANSWER = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def test_a_reader_is_gone_after_its_answer_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(one, AnswerReader) for one in gc.get_objects())
        for cut in (10, 40, len(_ANSWER) - 1):
            reader = AnswerReader()
            assert reader.feed(_ANSWER[:cut]) is None
            answer = reader.feed(_ANSWER[cut:])
            assert answer is not None
            assert (answer.status, answer.body, answer.is_last) == (201, b"{}", False)
            del reader
        assert sum(isinstance(one, AnswerReader) for one in gc.get_objects()) == before
    finally:
        gc.enable()


def test_two_answers_to_one_request_end_the_connection() -> None:
    answer = AnswerReader().feed(_ANSWER + _ANSWER)
    assert answer is not None
    assert answer.is_last
