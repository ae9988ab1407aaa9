"""`python -m thinwire`: the program in the package."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import thinwire
from thinwire.__main__ import PROGRAM

needs_program = pytest.mark.skipif(not PROGRAM.is_file(), reason="this installation has no program; ./wheel puts it in")


def run(*arguments, **settings):
    return subprocess.run(
        [sys.executable, "-m", "thinwire", *arguments], capture_output=True, text=True, timeout=300, **settings
    )


@needs_program
def test_it_knows_the_same_methods():
    done = run("methods")
    assert done.returncode == 0, done.stderr
    for name in thinwire.methods():
        assert name in done.stdout


@needs_program
def test_it_has_the_version_of_the_package():
    assert thinwire.__version__ in run("--version").stdout


@needs_program
def test_its_exit_status_and_its_errors_come_through():
    done = run("methods", "nope")
    assert done.returncode != 0 and "nope" in done.stderr


@needs_program
def test_it_trains(tmp_path):
    # Two workers: the program must find itself again to start them.
    done = run("train", "--workers", "2", "--epochs", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.rglob("*.html"))


@needs_program
def test_the_command_beside_python_is_the_same():
    command = Path(sys.executable).with_name("thinwire")
    if not command.exists():
        pytest.skip("the package is not installed here")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == run("--version").stdout


@needs_program
def test_the_program_and_the_package_send_the_same(tmp_path):
    gradient = np.random.default_rng(1).standard_normal(5000).astype(np.float32)
    np.save(tmp_path / "gradient.npy", gradient)
    done = run("compress", "gradient.npy", "-o", "gradient.tw", "--method", "topk", "--density", "1%", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run("decompress", "gradient.tw", "-o", "back.npy", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    sender = thinwire.Compressor(5000, "topk", density=0.01)
    np.testing.assert_array_equal(np.load(tmp_path / "back.npy"), sender.decompress(sender.compress(gradient)))


@pytest.fixture
def package(tmp_path):
    """A copy of the package, without the program."""
    ignore = shutil.ignore_patterns("bin", "torch", "__pycache__")
    return Path(shutil.copytree(Path(thinwire.__file__).parent, tmp_path / "thinwire", ignore=ignore))


def test_without_the_program_it_says_how_to_get_it(tmp_path, package):
    done = run("methods", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "./wheel" in done.stderr and "cargo install" in done.stderr and str(package / "bin") in done.stderr


def test_a_program_that_can_not_be_run_is_named(tmp_path):
    package = tmp_path / "thinwire"
    shutil.copytree(
        Path(thinwire.__file__).parent, package, ignore=shutil.ignore_patterns("bin", "torch", "__pycache__")
    )
    (package / "bin").mkdir()
    (package / "bin" / "thinwire").write_text("not a program")
    done = run("methods", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1 and "can't run" in done.stderr
