"""URLs of the Cloud API front, at the root of the host."""

from django.urls import re_path

from messaging.cloud_api.front import graph, graph_media, graph_upload, no_such_path

_VERSION = r"(?:(?P<version>v\d{1,3}\.\d{1,3})/)?"

urlpatterns = [
    re_path(
        rf"^{_VERSION}(?P<node>[0-9]{{5,64}})/(?P<edge>media|assets)/?$", graph_media, name="graph-media"
    ),
    re_path(
        rf"^{_VERSION}(?P<node>[0-9]{{5,64}})(?:/(?P<edge>[a-z_]+))?/?$",
        graph,
        name="graph-node",
    ),
    re_path(
        rf"^{_VERSION}upload:(?P<session>[A-Za-z0-9+/=_:-]{{1,1024}})/?$", graph_upload, name="graph-upload"
    ),
    re_path(
        rf"^{_VERSION}(?P<node>debug_token|oauth)(?:/(?P<edge>access_token))?/?$", graph, name="graph-root"
    ),
    re_path(r"^v\d{1,3}\.\d{1,3}(?:/|$)", no_such_path, name="graph-unknown"),
]
