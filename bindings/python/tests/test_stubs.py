"""The typed stubs say what the module has: every public name, and every signature."""

import ast
import inspect
import pathlib

import pytest

import esker
from esker import _esker

PACKAGE = pathlib.Path(esker.__file__).parent
STUB = ast.parse((PACKAGE / "_esker.pyi").read_text())
# Those that each object has, or that Python derives from others.
EVERYONES = set(dir(object)) | {"__module__", "__ge__", "__gt__", "__le__", "__lt__", "__ne__", "__eq__"}


def public(names):
    return {name for name in names if not name.startswith("_") and not name.startswith("measure_")}


def functions(body):
    """The functions of a body by name; of overloads the last one."""
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


CLASSES = {node.name: functions(node.body) for node in STUB.body if isinstance(node, ast.ClassDef)}
PRIVATE = {name for name in CLASSES if name.startswith("_")}


def shape(arguments):
    """Parameters with their kinds and defaults, of a stub."""
    positional = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    found = [(arg.arg, "positional", default and ast.literal_eval(default) is not ... and ast.unparse(default))
             for arg, default in zip(positional, defaults)]
    if arguments.vararg:
        found.append((arguments.vararg.arg, "rest", None))
    for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        found.append((arg.arg, "keyword", default and ast.unparse(default)))
    return found


def real_shape(function):
    kinds = {"POSITIONAL_ONLY": "positional", "POSITIONAL_OR_KEYWORD": "positional", "KEYWORD_ONLY": "keyword",
             "VAR_POSITIONAL": "rest"}
    return [(name, kinds[parameter.kind.name], None if parameter.default is parameter.empty else repr(parameter.default))
            for name, parameter in inspect.signature(function).parameters.items()]


def same(stub, function, name):
    wanted, real = shape(stub.args), real_shape(function)
    # An overload without a default stands for one that has it.
    wanted = [(arg, kind, "None" if arg == "default" else default) for arg, kind, default in wanted]
    assert [row[:2] for row in wanted] == [row[:2] for row in real], name
    assert [row[2] and row[2].replace('"', "'") for row in wanted] == [row[2] for row in real], name


def test_stub_has_the_public_names_of_the_module():
    names = set(CLASSES) - PRIVATE | set(functions(STUB.body))
    assert names == public(dir(_esker))
    assert set(esker.__all__) == public(dir(esker)) | {"__version__"}
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("name", sorted(functions(STUB.body)))
def test_function_has_the_signature_of_its_stub(name):
    same(functions(STUB.body)[name], getattr(_esker, name), name)


@pytest.mark.parametrize("name", sorted(set(CLASSES) - PRIVATE))
def test_class_has_the_methods_of_its_stub(name):
    real, stub = getattr(_esker, name), CLASSES[name]
    missing = set(vars(real)) - EVERYONES - set(stub) - {"__doc__"}
    assert not missing, f"{name} has {missing}, and its stub has not"
    for method, node in stub.items():
        assert method in vars(real), f"the stub of {name} has {method}"
        value = vars(real)[method]
        if any(ast.unparse(decorator) == "property" for decorator in node.decorator_list):
            assert inspect.isgetsetdescriptor(value), method
        elif not method.startswith("__") or method == "__exit__":
            same(node, value, f"{name}.{method}")


def test_everything_has_a_docstring():
    for name in esker.__all__:
        value = getattr(esker, name)
        if name == "__version__":
            continue
        assert value.__doc__, name
        if inspect.isclass(value) and value.__module__ == "esker" and not issubclass(value, Exception):
            undocumented = [
                method for method, call in vars(value).items() if not method.startswith("_") and not call.__doc__
            ]
            assert not undocumented, f"{name}: {undocumented}"
