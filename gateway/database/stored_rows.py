"""Rows of written-out statements as instances of their model."""

from collections.abc import Collection, Sequence
from typing import Any, Generic, TypeVar

from django.db.models import Model
from django.db.models.base import ModelState

Instance = TypeVar("Instance", bound=Model)


class StoredRows(Generic[Instance]):
    """The columns of a model in the order in which a statement selects them, but for those `without`.

    A column that is left out is read when it is asked for, as after `defer`.
    """

    def __init__(self, model: type[Instance], *, without: Collection[str] = ()) -> None:
        self.table = model._meta.db_table
        self.columns = tuple(
            field.attname for field in model._meta.concrete_fields if field.attname not in without
        )
        self._model = model

    def __str__(self) -> str:
        """The columns as a statement lists them."""
        return ", ".join(self.columns)

    def instance(self, row: Sequence[Any]) -> Instance:
        """The instance of a row, as `Model.from_db` makes it.

        That takes six times as long: it asks each field, and sends two signals that nobody listens to.
        """
        state = ModelState()
        state.adding = False
        made = self._model.__new__(self._model)
        made.__dict__.update(zip(self.columns, row, strict=True), _state=state)
        return made
