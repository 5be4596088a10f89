"""What the synthetic agents work on: their tasks, and tool results that look like real ones.

Every text follows from the random generator that is passed in, so one seed always gives one
workload. A tool result has roughly 80 to 250 tokens with the default model's tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

TASKS: tuple[str, ...] = (
    "A child under four should travel free, but the API charges the child fare since the last "
    "release. Find the cause, fix it and add a test.",
    "Customers report that a ticket mail sometimes arrives twice. Find out from the worker's logs "
    "when this happens and make sending happen once.",
    "The scheduler opened a departure on 29 March one hour late. Check how local times are turned "
    "into UTC around the change to summer time and correct it.",
    "The endpoint that lists departures takes more than two seconds for a whole month. Find the "
    "queries it makes and reduce them without changing its answer.",
    "Add a field `bicycles` to a booking. It counts against the departure's bicycle places and "
    "must be refused when none is left. Follow the way vehicles are handled.",
    "The test test_refund_after_departure fails about once in twenty runs. Find out why and make "
    "the code or the test dependable, whichever is wrong.",
    "The web process grows by about 40 MB a day on staging. Find what keeps the memory and "
    "propose the smallest change that lets go of it.",
    "Move the settings of the mail server out of harbor/mail.py into the settings file, keep the "
    "old names working for one release and warn when they are used.",
    "A booking for two persons on a departure with one free place was accepted yesterday at "
    "17:42 UTC. Explain how two requests could pass the check and close the gap.",
    "The cancel endpoint answers 500 when the booking number has a space at its end. Make all "
    "endpoints that take a booking number tolerate it in the same way.",
    "Prices in the mail are written with a point although the customer chose German. Find where "
    "the language is lost between the API and the mail template.",
    "The worker stops taking jobs after the database was restarted. Find out what it waits for "
    "and let it connect again, with a growing delay between attempts.",
)

_FILES = (
    "harbor/fares.py",
    "harbor/bookings.py",
    "harbor/departures.py",
    "harbor/mail.py",
    "harbor/api/routes.py",
    "harbor/api/schemas.py",
    "harbor/worker/jobs.py",
    "harbor/worker/retry.py",
    "harbor/scheduler/clock.py",
    "harbor/db/session.py",
    "tests/test_fares.py",
    "tests/test_bookings.py",
    "tests/test_mail.py",
    "tests/test_clock.py",
)
_NAMES = (
    "child_fare",
    "open_departure",
    "free_places",
    "send_ticket",
    "parse_booking_number",
    "refund_amount",
    "local_to_utc",
    "next_attempt",
    "reserve_vehicle",
    "load_settings",
)
_LOG_EVENTS = (
    ("INFO", "departure {n} opened for booking, {k} places"),
    ("INFO", "ticket mail for booking HB{n} handed to the relay after {k} ms"),
    ("WARNING", "job {n} took {k} s, longer than its lease of 30 s"),
    ("WARNING", "retrying connection to the database, attempt {k}"),
    ("ERROR", "booking HB{n} refused: {k} places asked for, none left"),
    ("INFO", "GET /departures?harbor={k} answered 200 in {n} ms"),
    ("ERROR", "mail relay closed the connection while sending job {n}"),
)
_CODE = (
    "    if passenger.age < settings.free_below:",
    "        return 0",
    "    fare = table.lookup(departure.route, passenger.kind)",
    "    with session.begin():",
    "        row = session.get(Departure, departure_id, with_for_update=True)",
    "        if row.booked + wanted > row.places:",
    "            raise NoPlaceLeft(departure_id, wanted)",
    "        row.booked += wanted",
    "    delay = min(BASE_DELAY * 2**attempt, MAX_DELAY)",
    "    logger.warning('connection lost, trying again in %.1f s', delay)",
    "    moment = datetime.combine(day, time, tzinfo=zone)",
    "    return moment.astimezone(UTC)",
    "    for job in queue.take(limit=settings.batch):",
    "        deliver(job, language=job.language or DEFAULT_LANGUAGE)",
)


def _listing(rng: Random) -> str:
    rows = [
        f"{rng.randrange(400, 48_000):>7}  2024-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
        f"  {name}"
        for name in sorted(rng.sample(_FILES, rng.randrange(5, 9)))
    ]
    return "\n".join(rows) + f"\n{len(rows)} entries"


def _search(rng: Random) -> str:
    name = rng.choice(_NAMES)
    shapes = (
        f"from harbor.fares import {name}",
        f"def {name}(booking: Booking, now: datetime) -> int:",
        f"    amount = {name}(booking, clock.now())",
        f"    assert {name}(sample, NOW) == {rng.randrange(0, 9000)}",
        f"# {name} is also called from the mail template",
    )
    hits = [
        f"{path}:{rng.randrange(4, 420)}:{rng.choice(shapes)}"
        for path in sorted(rng.sample(_FILES, rng.randrange(5, 8)))
    ]
    return "\n".join(hits) + f"\n{len(hits)} hits in {len(hits)} files"


def _tests(rng: Random) -> str:
    name, path = rng.choice(_NAMES), rng.choice(_FILES[-4:])
    left, right = rng.randrange(0, 5000), rng.randrange(0, 5000)
    passed = rng.randrange(12, 140)
    return (
        f"{path} {'.' * rng.randrange(6, 20)}F{'.' * rng.randrange(2, 12)}\n"
        f"_____ test_{name}_at_the_limit _____\n"
        f"    def test_{name}_at_the_limit(sample: Booking) -> None:\n"
        f"        result = {name}(sample, NOW + timedelta(minutes={rng.randrange(1, 60)}))\n"
        f">       assert result == {left}\n"
        f"E       assert {right} == {left}\n"
        f"{path}:{rng.randrange(20, 300)}: AssertionError\n"
        f"1 failed, {passed} passed in {rng.randrange(80, 4000) / 100:.2f} s"
    )


def _logs(rng: Random) -> str:
    minute, lines = rng.randrange(0, 50), []
    for _ in range(rng.randrange(3, 6)):
        level, event = rng.choice(_LOG_EVENTS)
        text = event.format(n=rng.randrange(100, 9999), k=rng.randrange(1, 40))
        lines.append(f"17:{minute:02}:{rng.randrange(60):02} {level} {text}")
        minute += 1
    return "\n".join(lines) + f"\n{len(lines)} lines, older ones left out"


def _file(rng: Random) -> str:
    first = rng.randrange(10, 200)
    body = [f"def {rng.choice(_NAMES)}(departure_id: int, wanted: int) -> None:"]
    body += rng.sample(_CODE, rng.randrange(6, 10))
    rows = [f"{first + i:>4}  {line}" for i, line in enumerate(body)]
    return rng.choice(_FILES) + "\n" + "\n".join(rows)


def _command(rng: Random) -> str:
    rows = [
        f" {path} | {'+' * rng.randrange(1, 9)}{'-' * rng.randrange(0, 6)}"
        for path in sorted(rng.sample(_FILES, rng.randrange(3, 6)))
    ]
    return (
        "exit status 0\n"
        f"commit {rng.randrange(16**10):010x}\n"
        f"    {rng.choice(_NAMES)}: handle the last place of a departure\n"
        + "\n".join(rows)
        + f"\n {len(rows)} files changed"
    )


_KINDS: tuple[tuple[str, Callable[[Random], str]], ...] = (
    ("list_files", _listing),
    ("search_code", _search),
    ("run_tests", _tests),
    ("query_logs", _logs),
    ("read_file", _file),
    ("run_command", _command),
)


def tool_result(rng: Random) -> str:
    """One tool's result with its heading, as the text of a user message."""
    tool, write = rng.choice(_KINDS)
    return f"Tool result: {tool}\n{write(rng)}"


def task_text(rng: Random, task: str) -> str:
    """A task as its agent gets it, with a ticket number that makes two agents' prompts part."""
    return f"Ticket {rng.randrange(1000, 10_000)}. {task}"
