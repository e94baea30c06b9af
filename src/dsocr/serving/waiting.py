"""From a request to its answer: images into the engine, and a look now and then whether the client still waits."""

import asyncio
import time
from collections.abc import Sequence

from starlette.requests import Request

from dsocr.errors import DataError, DsocrError
from dsocr.inference.transcriber import Prediction
from dsocr.serving.bodies import pixels_of
from dsocr.serving.engine import Engine, Job
from dsocr.serving.limits import Limits, RefusedError, fault

_LOOK = 0.25
"""Seconds between two looks whether the client is still there."""


async def read_images(
    request: Request, images: Sequence[bytes], model: str, engine: Engine, limits: Limits
) -> list[Prediction]:
    """What is read of the images. Raises RefusedError where they cannot be read in time, or nobody waits any longer."""
    engine.demand_room(len(images))
    sizes = [await asyncio.to_thread(pixels_of, data, limits) for data in images]
    expires = time.monotonic() + limits.deadline
    jobs = [Job(data, pixels, model, expires) for data, pixels in zip(images, sizes, strict=True)]
    engine.submit(jobs)
    answers = [asyncio.wrap_future(job.answer) for job in jobs]
    try:
        await _all_of(request, answers, expires, limits)
        return [answer.result() for answer in answers]
    finally:
        for job, answer in zip(jobs, answers, strict=True):
            answer.cancel()
            job.answer.cancel()
            if answer.done() and not answer.cancelled():
                answer.exception()  # looked at, so that nobody complains that it was not


async def _all_of(
    request: Request, answers: "Sequence[asyncio.Future[Prediction]]", expires: float, limits: Limits
) -> None:
    waiting = set(answers)
    while waiting:
        done, waiting = await asyncio.wait(waiting, timeout=_LOOK, return_when=asyncio.FIRST_EXCEPTION)
        for answer in done:
            if answer.cancelled():  # the engine let go of it at its deadline
                raise _too_late(limits)
            if error := answer.exception():
                raise _refusal(error)  # the others need not be waited for
        if not waiting:
            return
        if time.monotonic() > expires:
            raise _too_late(limits)
        if await request.is_disconnected():
            raise RefusedError(499, "client_gone", "the client went away")


def _refusal(error: BaseException) -> RefusedError:
    """What to answer for an error; a new one, since the frames it is raised through hold the first, and all images."""
    match error:
        case RefusedError():
            return RefusedError(error.status, error.code, error.message, retry_after=error.retry_after)
        case DataError():
            return RefusedError(422, "unreadable_image", str(error))
        case DsocrError():
            return RefusedError(409, "cannot_read", str(error))
        case _:
            return fault()


def _too_late(limits: Limits) -> RefusedError:
    return RefusedError(504, "too_late", f"not read within {limits.deadline:g} s", retry_after=5)
