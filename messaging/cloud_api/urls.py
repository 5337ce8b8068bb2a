"""URLs of the Cloud API front, at the root of the host."""

from django.urls import re_path

from messaging.cloud_api.front import graph, graph_media, graph_root, graph_upload, no_such_path
from messaging.known_nodes import GROUP_ID, NODE_ID

_VERSION = r"(?:(?P<version>v\d{1,3}\.\d{1,3})/)?"
_NODE = rf"(?P<node>{NODE_ID.pattern})"
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.=~-]{0,255}"
# Edges are lower-case, because another spelling could bypass the rules for an edge.
_EDGE = rf"(?P<edge>[a-z_]{{1,64}}(?:/{_PART}){{0,5}})"

urlpatterns = [
    re_path(rf"^{_VERSION}{_NODE}/(?P<edge>media|assets)/?$", graph_media, name="graph-media"),
    re_path(rf"^{_VERSION}(?P<node>{GROUP_ID.pattern})/?$", graph_media, name="graph-group"),
    re_path(rf"^{_VERSION}{_NODE}(?:/{_EDGE})?/?$", graph, name="graph-node"),
    re_path(
        rf"^{_VERSION}upload:(?P<session>[A-Za-z0-9+/=_:-]{{1,1024}})/?$", graph_upload, name="graph-upload"
    ),
    re_path(
        rf"^{_VERSION}(?P<node>debug_token|me|message_template_library|oauth)(?:/{_EDGE})?/?$",
        graph_root,
        name="graph-root",
    ),
    re_path(rf"^{_VERSION}(?P<node>signups)/(?P<edge>[0-9]{{5,64}})/?$", graph_root, name="graph-signup"),
    re_path(r"^(?P<version>v\d{1,3}\.\d{1,3})/?$", graph_root, name="graph-version"),
    re_path(r"^v\d{1,3}\.\d{1,3}/", no_such_path, name="graph-unknown"),
]
