"""URL resolver of the API: finds a route by the first segment of its path.

There are more than a hundred routes under `/v1`. Django tries one after another, which takes a seventh of a small
read; of those that share a first segment there are at most two dozen.
"""

from collections import defaultdict
from collections.abc import Sequence

from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern, URLResolver
from django.urls.resolvers import ResolverMatch, RoutePattern


class SegmentResolver(URLResolver):
    """Resolves paths below a prefix. The first segment of each of its routes is a plain word."""

    def __init__(self, prefix: str, patterns: Sequence[URLPattern]) -> None:
        super().__init__(RoutePattern(prefix), patterns)
        self._prefix = prefix
        by_segment: dict[str, list[URLPattern]] = defaultdict(list)
        for pattern in patterns:
            segment = _first_segment(str(pattern.pattern))
            if "<" in segment:
                raise ImproperlyConfigured(f"The first segment of {pattern.pattern} is not a plain word.")
            by_segment[segment].append(pattern)
        self._resolvers = {segment: URLResolver(self.pattern, same) for segment, same in by_segment.items()}
        self._no_routes = URLResolver(self.pattern, [])

    def resolve(self, path: str) -> ResolverMatch:
        """The match of a path. Raises Resolver404."""
        segment = _first_segment(path.removeprefix(self._prefix))
        return self._resolvers.get(segment, self._no_routes).resolve(path)


def _first_segment(route: str) -> str:
    return route.partition("/")[0]
