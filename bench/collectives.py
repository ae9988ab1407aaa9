"""Collectives of thinwire, Gloo and Open MPI on loopback: in turns, so that all meet the machine in the same moods.

Each round starts every library anew and measures all cases; the figure is the median over the rounds of each
library's median, and the ratio is the median over the rounds of the ratio inside a round.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys

PROGRAM = "target/release/thinwire"
OPEN_MPI = "target/bench/open_mpi"
CASES = [
    ("all-reduce", 100_000_000, 5),
    ("all-reduce", 1_000_000, 60),
    ("all-gather", 4_096, 600),
    ("broadcast", 4_096, 600),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def thinwire(ranks: int, options: list[str]) -> dict:
    """The faster of ring and tree, as the caller may choose it for each call."""
    found = {}
    for collective, length, repeats in CASES:
        command = [PROGRAM, "bench", "collective", "-n", str(ranks), "--what", collective, "--sizes", str(length)]
        command += ["--repeats", str(repeats), "--json", *options]
        if collective == "all-reduce":
            command += ["--algorithms", "ring"]
        rows = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["rows"]
        found[collective, length] = min(row["p50_ms"] for row in rows)
    return found


def gloo(ranks: int) -> dict:
    port = free_port()
    workers = []
    for rank in range(ranks):
        environment = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "bench/peers/gloo.py", json.dumps(CASES)]
        workers.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
    outputs = [worker.communicate()[0] for worker in workers]
    assert all(worker.returncode == 0 for worker in workers), "a Gloo rank failed"
    return {(row["collective"], row["bytes"]): row["p50_ms"] for row in json.loads(outputs[0])}


def open_mpi(ranks: int, transport: list[str]) -> dict:
    command = ["mpirun", "--oversubscribe", "-np", str(ranks), *transport]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    command.append(OPEN_MPI)
    for case in CASES:
        command += map(str, case)
    done = subprocess.run(command, check=True, capture_output=True)
    return {(row["collective"], row["bytes"]): row["p50_ms"] for row in json.loads(done.stdout)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    with open("target/bench/secret", "w") as secret:
        secret.write("a secret for the benchmark\n")
    libraries = {
        "thinwire": lambda: thinwire(arguments.ranks, []),
        "thinwire, encrypted": lambda: thinwire(arguments.ranks, ["--secret-file", "target/bench/secret"]),
        "Gloo": lambda: gloo(arguments.ranks),
        "Open MPI, TCP": lambda: open_mpi(arguments.ranks, ["--mca", "btl", "tcp,self"]),
        "Open MPI, shared memory": lambda: open_mpi(arguments.ranks, []),
    }
    rounds = []
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        rounds.append({name: measure() for name, measure in libraries.items()})
    rows = []
    for collective, length, _ in CASES:
        for name in libraries:
            times = [one[name][collective, length] for one in rounds]
            ratios = [one[name][collective, length] / one["thinwire"][collective, length] for one in rounds]
            rows.append({
                "collective": collective,
                "bytes": length,
                "library": name,
                "p50_ms": round(statistics.median(times), 4),
                "times_thinwire": round(statistics.median(ratios), 3),
            })
    if arguments.json:
        print(json.dumps({"ranks": arguments.ranks, "rounds": arguments.rounds, "rows": rows}, indent=2))
        return
    for row in rows:
        print("{collective:12}{bytes:>12}  {library:26}{p50_ms:>12.3f} ms{times_thinwire:>9.2f}".format(**row))


if __name__ == "__main__":
    main()
