"""The next step is planned before the tokens of this one are known.

A device computes one step while the host plans the next. What the step computes is assumed to be
computed, and what it samples is stood for by a guess, until `settle` knows better:

::

    |  computed tokens  |  ahead: being computed  |  guess  |
    0          num_computed - ahead         num_computed    len(tokens)

A request that ends with the token that is being sampled, as its answer is long enough then, gets no
guess: it takes part in no step any more. One that ends earlier, by a stop token or a stop string,
has taken part in one step too many, whose result nobody looks at.
"""

from __future__ import annotations

from scheduler.plan import ScheduledSpan
from scheduler.request import Request

GUESS = 0
"""Stands for a token that is not known; the device has it."""


def assume(span: ScheduledSpan) -> None:
    """Go on as if a span had been computed."""
    request = span.request
    request.num_computed_tokens = span.start + span.count
    request.ahead = span.count
    if span.samples and request.num_new_tokens + 1 < request.max_new_tokens:
        request.tokens.append(GUESS)
        request.is_guessed = True


def take_back(request: Request) -> None:
    """Nothing has been assumed of this request: whatever comes of it will be thrown away."""
    request.num_computed_tokens -= request.ahead
    request.ahead = 0
    if request.is_guessed:
        request.is_guessed = False
        request.tokens.pop()


def end_with_flight(request: Request) -> bool:
    """Let the token that is being sampled of this request be its last, so that it takes part in no
    further step. False, and nothing changes, where none is."""
    if request.is_guessed:
        request.is_guessed = False
        request.tokens.pop()
    elif not request.ahead or request.remaining_tokens:
        return False
    request.max_new_tokens = request.num_new_tokens + 1
    return True


def settle(request: Request, token: int) -> None:
    """The sampled token is known."""
    if request.is_guessed:
        request.is_guessed = False
        request.tokens[-1] = token
    else:
        request.tokens.append(token)
