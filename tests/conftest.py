"""Fixtures shared by the tests."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hermes.frames import Frame
from hermes.models import VideoModel, wrap_model
from tests import make_tiny


def _opencv_loads() -> bool:
    try:
        importlib.import_module("cv2")
    except ImportError:
        return False
    return True


needs_opencv = pytest.mark.skipif(not _opencv_loads(), reason="OpenCV is missing, or a system library that it needs")


@pytest.fixture(autouse=True)
def _deterministic() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the models of the tests are too small for more


@pytest.fixture(autouse=True)
def _own_state_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees sessions of another, or of the user."""
    monkeypatch.setenv("HERMES_STATE_DIR", str(tmp_path_factory.mktemp("state")))


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """The program sets some; the tests' own come back."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def stock() -> tuple[Any, Any]:
    """A plain transformers LLaVA-OneVision and its processor, untouched."""
    return make_tiny.llava_onevision()


@pytest.fixture
def model() -> VideoModel:
    """The same weights behind our adapter."""
    return wrap_model(*make_tiny.llava_onevision(), "tiny random")


@pytest.fixture
def small_model() -> Callable[..., VideoModel]:
    """Random models with other depths and position ranges."""
    return lambda **sizes: wrap_model(*make_tiny.llava_onevision(**sizes), "tiny random")


def noise_frames(count: int, seed: int = 0, width: int = 40, height: int = 30) -> list[Frame]:
    """Frames of noise, one a second."""
    rng = np.random.default_rng(seed)
    return [Frame(float(index), rng.integers(0, 256, (height, width, 3), dtype=np.uint8)) for index in range(count)]
