"""Errors out of backward passes of torch.distributed's own modules."""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch

from .._job import Job
from .._library import Error


def explain(job_of: Callable[[], Job | None]) -> None:
    """From now on, an exception that PyTorch's C++ makes of the text of a psring error in a backward pass (as DDP's does) has
    that error as its `__cause__`. `job_of`: the default group's job, if it is psring's."""
    plain: Any = torch.autograd.backward

    @functools.wraps(plain)
    def backward(*arguments: Any, **keywords: Any) -> None:
        job = job_of()
        before = job.error if job is not None else None
        try:
            plain(*arguments, **keywords)
        except RuntimeError as error:
            if job is not None and job.is_member() and error.__cause__ is None and not isinstance(error, Error):
                cause = job.error if job.error is not before else failure_of(job)
                if cause is not None:  # None would hide the error's context
                    error.__cause__ = cause
            raise

    torch.autograd.backward = backward


def failure_of(job: Job) -> Error | None:
    """The error that has ended the job; after it DDP's own state is wrong, and says so first."""
    try:
        job.check()
    except Error as error:
        return error
    return None
