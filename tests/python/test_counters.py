"""scripts/counters.sh with a program in ncu's place that writes what is here, in the form of `ncu --csv --page raw`: the table's arithmetic
and its errors, and nothing of a GPU. The figures are made up."""

import os
import subprocess

import pytest

PROBLEM = "grad_weight,dtype=bf16,B=2,T=64,D=64"
COLUMNS = (
    "ID,Process ID,Kernel Name,Grid Size,dram__bytes_read.sum,dram__bytes_write.sum,"
    "dram__throughput.avg.pct_of_peak_sustained_elapsed,gpu__time_duration.sum,l1tex__m_xbar2l1tex_read_bytes.sum,"
    "lts__t_requests.sum,lts__throughput.avg.pct_of_peak_sustained_elapsed,sm__cycles_elapsed.avg.per_second,"
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed"
).split(",")
UNITS = ["", "", "", "", "byte", "byte", "%", "ns", "byte", "", "%", "hz", "%"]
PRODUCT = [
    "1,201,600,000",
    "2,000,000",
    "63.51",
    "219,840",
    "1,960,000,000",
    "17,200,000",
    "91.6",
    "1,560,000,000",
    "63.2",
]
SUM = ["1,000,000", "500,000", "12.2", "9,040", "3,000,000", "40,000", "20.4", "1,700,000,000", "n/a"]


def line(cells):
    return ",".join(f'"{cell}"' for cell in cells)


def launch(number, kernel, values):
    return line([number, 77, f"{kernel}(trigen::Params)", "(132, 1, 1)", *values])


@pytest.fixture
def counters(repository, tmp_path):
    if "TRIGEN_PROGRAM" not in os.environ:
        pytest.skip("[SKIP] the trigen program is not built")

    def run(*arguments, code=0, csv=()):
        (tmp_path / "csv").write_text("".join(text + "\n" for text in csv))
        ncu = tmp_path / "ncu"
        ncu.write_text(
            "#!/bin/bash\n"
            'while [ "$1" != --log-file ]; do shift; done\n'
            f'cat "{tmp_path}/csv" >"$2"\n'
            f'echo "ok    ${{@: -1}}  wgmma_sm90:tile=64x64x64  error 1e-3, allowed 2e-3"; exit {code}\n'
        )
        ncu.chmod(0o755)
        return subprocess.run(
            [repository / "scripts/counters.sh", *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "NCU": str(ncu), "TRIGEN": os.environ["TRIGEN_PROGRAM"]},
        )

    return run


def test_a_row_a_launch_of_the_first_run(counters, tmp_path):
    csv = ["==PROF== Connected to process 77", line(COLUMNS), line(UNITS)]
    csv += [launch(0, "trigen_grad_weight", PRODUCT), launch(1, "trigen_reduce", SUM)]
    csv += [launch(2, "trigen_grad_weight", ["1"] * 9), launch(3, "trigen_reduce", ["1"] * 9)]
    problems = tmp_path / "problems.txt"
    problems.write_text(f"# two\n{PROBLEM}\n\n{PROBLEM}  # again\n")
    done = counters(problems, csv=csv)
    assert done.returncode == 0, done.stderr
    heads, rows = done.stdout.splitlines()[:2], done.stdout.splitlines()[2:]
    assert heads[1].split() == [
        "launch",
        "us",
        "GHz",
        "L2",
        "%",
        "tensor%",
        "DRAM%",
        "read",
        "least",
        "written",
        "least",
        "MB",
        "M",
        "requests",
    ]
    # x and dy, 2 * 64 * 64 elements of 2 bytes each; 64 * 65 / 2 of dW
    assert [row.split() for row in rows[:3]] == [
        [PROBLEM, "wgmma_sm90:tile=64x64x64"],
        ["trigen_grad_weight", "219.8", "1.56", "92", "63", "64", "1201.6", "0.0", "2.0", "0.0", "1960.0", "17.20"],
        ["trigen_reduce", "9.0", "1.70", "20", "-", "12", "1.0", "0.5", "3.0", "0.04"],
    ]
    assert rows[3:] == rows[:3]


def test_what_ncu_says_when_it_counts_nothing(counters):
    done = counters(PROBLEM, csv=["==ERROR== ERR_NVGPUCTRPERM"], code=1)
    assert done.returncode == 1
    assert "ERR_NVGPUCTRPERM" in done.stderr and PROBLEM in done.stderr
    done = counters(PROBLEM, csv=["==WARNING== No kernels were profiled."])
    assert done.returncode == 1
    assert "no launch counted" in done.stderr


def test_no_ncu(repository):
    done = subprocess.run(
        [repository / "scripts/counters.sh"], capture_output=True, text=True, env={**os.environ, "NCU": "/nowhere/ncu"}
    )
    assert done.returncode == 2
    assert "name it in NCU" in done.stderr
