"""Airflow 3: the DAG `retrain`, which trains and deploys a model. Copy it into Airflow's folder of DAGs.

airflow_job.py, beside this file, starts a run for each alert. RETRAIN_COMMAND in the environment of Airflow's
workers is the job, as for retrain.py: it gets TASK, MODEL, METRIC and REASON in its environment, and the last
line of its output is the new version of the model. The package apache-airflow-providers-standard is needed.
"""

import os
import shlex
import subprocess

from airflow.sdk import Param, dag, task

CAUSE = ("TASK", "MODEL", "METRIC", "REASON")


@dag(
    schedule=None,
    max_active_runs=1,
    is_paused_upon_creation=False,
    params={name: Param("", type="string") for name in CAUSE},
)
def retrain():
    """Train one model after the other."""

    @task
    def train(params: dict) -> str:
        """Return the version that the job prints; a template would evaluate braces in the names of models."""
        command, cause = shlex.split(os.environ["RETRAIN_COMMAND"]), {name: params[name] for name in CAUSE}
        job = subprocess.run(command, env=os.environ | cause, stdout=subprocess.PIPE, text=True, check=True)
        print(job.stdout)
        return job.stdout.strip().splitlines()[-1]

    train()


retrain()
