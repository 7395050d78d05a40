"""The twin of a statement that saves or loads the optimizer's state: the same, for the scaler's."""

from __future__ import annotations

import libcst as cst

from amp_migrate.edit.edits import OPTIMIZER_WORD, StateFile
from amp_migrate.edit.mismatch import MismatchError


def twin(expression: cst.BaseExpression, edit: StateFile) -> str:
    """The code of the statement that follows, for ``torch.save(...)`` or ``....load_state_dict(...)``.

    A scaler that is off has no state: it writes no file, and what is there is none of its own.
    """
    if not isinstance(expression, cst.Call):
        raise MismatchError("no call where the plan saw one")
    if edit.exists is None:
        state = cst.parse_expression(f"{edit.switch}.state_dict()")
        call, _ = _with_path(_with_argument(expression, 0, state), 1, edit.word)
        return f"if {edit.switch}.is_enabled():\n    {_one_line(call)}"
    inner = expression.args[0].value
    if not isinstance(inner, cst.Call):
        raise MismatchError("no call of a load where the plan saw one")
    load, path = _with_path(inner, 0, edit.word)
    found = f"{edit.exists}({_one_line(path)})"
    return (
        f"if {edit.switch}.is_enabled() and {found}:\n"
        f"    {edit.switch}.load_state_dict({_one_line(load)})"
    )


def _with_argument(call: cst.Call, index: int, value: cst.BaseExpression) -> cst.Call:
    args = list(call.args)
    args[index] = args[index].with_changes(value=value)
    return call.with_changes(args=args)


def _with_path(
    call: cst.Call, position: int, word: str
) -> tuple[cst.Call, cst.BaseExpression]:
    """The call with the optimizer's word replaced in its path, and that path."""
    renamer = _Renamer(word)
    index = next(
        (
            i
            for i, arg in enumerate(call.args)
            if (arg.keyword.value == "f" if arg.keyword else i == position)
        ),
        None,
    )
    if index is None:
        raise MismatchError("no path where the plan saw one")
    path = call.args[index].value.visit(renamer)
    if renamer.count != 1 or not isinstance(path, cst.BaseExpression):
        raise MismatchError("the path does not name the optimizer as the plan saw it")
    return _with_argument(call, index, path), path


class _Renamer(cst.CSTTransformer):
    """Puts another word in the optimizer's place in all texts."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word
        self.count = 0

    def _renamed(self, text: str) -> str:
        changed, count = OPTIMIZER_WORD.subn(self.word, text)
        self.count += count
        return changed

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        node = updated_node
        text = self._renamed(node.raw_value)
        return node.with_changes(value=f"{node.prefix}{node.quote}{text}{node.quote}")

    def leave_FormattedStringText(
        self,
        original_node: cst.FormattedStringText,
        updated_node: cst.FormattedStringText,
    ) -> cst.FormattedStringText:
        return updated_node.with_changes(value=self._renamed(updated_node.value))


class _Joiner(cst.CSTTransformer):
    """Puts an expression on one line, without the comments in it."""

    def leave_ParenthesizedWhitespace(
        self,
        original_node: cst.ParenthesizedWhitespace,
        updated_node: cst.ParenthesizedWhitespace,
    ) -> cst.SimpleWhitespace:
        return cst.SimpleWhitespace(" ")

    def leave_SimpleWhitespace(
        self, original_node: cst.SimpleWhitespace, updated_node: cst.SimpleWhitespace
    ) -> cst.SimpleWhitespace:
        split = "\\" in updated_node.value
        return cst.SimpleWhitespace(" ") if split else updated_node


def _one_line(expression: cst.BaseExpression) -> str:
    joined = expression.visit(_Joiner())
    assert isinstance(joined, cst.BaseExpression)
    return cst.Module([]).code_for_node(joined)
