import threading
from queue import SimpleQueue

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.rank_loop import CopyThread

MESSAGES = [Message(MessageKind.ACTIVATION, microbatch) for microbatch in range(3)]

PATIENCE_S = 60


def payload_of(message: Message) -> memoryview:
    return memoryview(bytes([message.microbatch]))


def test_messages_are_sent_in_their_order_with_their_bytes() -> None:
    sent: list[tuple[int, Message, bytes]] = []
    copy_thread = CopyThread(payload_of, lambda *args: sent.append((*args[:2], bytes(args[2]))), lambda fault: None)
    for message in MESSAGES:
        copy_thread.send(7, message)
    copy_thread.close()
    assert sent == [(7, message, bytes(payload_of(message))) for message in MESSAGES]


def test_the_sender_does_not_wait_for_the_copy() -> None:
    copied, sent = threading.Event(), SimpleQueue[Message]()

    def fetch(message: Message) -> memoryview:
        assert copied.wait(PATIENCE_S)
        return payload_of(message)

    copy_thread = CopyThread(fetch, lambda iteration, message, payload: sent.put(message), lambda fault: None)
    copy_thread.send(0, MESSAGES[0])
    assert sent.empty()
    copied.set()
    assert sent.get(timeout=PATIENCE_S) == MESSAGES[0]
    copy_thread.close()


def test_a_copy_that_fails_is_reported_and_nothing_is_sent_after_it() -> None:
    faults: SimpleQueue[Exception] = SimpleQueue()
    sent: list[Message] = []
    fault = RuntimeError("the device is lost")

    def fetch(message: Message) -> memoryview:
        if message.microbatch == 1:
            raise fault
        return payload_of(message)

    copy_thread = CopyThread(fetch, lambda iteration, message, payload: sent.append(message), faults.put)
    for message in MESSAGES:
        copy_thread.send(0, message)
    assert faults.get(timeout=PATIENCE_S) is fault
    copy_thread.close()
    assert sent == MESSAGES[:1]
