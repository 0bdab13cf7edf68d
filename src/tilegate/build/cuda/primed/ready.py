"""Waits until every header that was begun is there."""

from tilegate.build.cuda import nvrtc

nvrtc.ready()
