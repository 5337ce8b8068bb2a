"""The web role: the listener, the routes that it answers itself, and the hand-over of all other routes to Django."""
