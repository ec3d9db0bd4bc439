#!/usr/bin/env python3
"""The Kubernetes manifests against Kubernetes' own schemas, and what holds between them. Without the
package kubernetes-validate (and PyYAML) from PyPI it says so and exits with 77."""

import glob
import os
import sys

VERSIONS = ("1.28", "1.33")
SKIPPED = 77
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docker", "kubernetes")


def main():
    try:
        import kubernetes_validate
        import yaml
    except ImportError as missing:
        print(f"skipped: {missing}; pip install kubernetes-validate")
        return SKIPPED
    failures = []
    found = {}
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.yaml"))):
        with open(path, encoding="utf-8") as file:
            documents = list(yaml.safe_load_all(file))
        for document in documents:
            what = f"{os.path.basename(path)}: {document['kind']}"
            found.setdefault(document["kind"], []).append(document)
            for version in VERSIONS:
                try:
                    kubernetes_validate.validate(document, version, strict=True)
                except Exception as error:  # each version of the package has its own kinds
                    failures.append(f"{what} ({version}): {getattr(error, 'message', error)}")
    failures += between(found)
    for failure in failures:
        print(failure)
    print(f"{sum(map(len, found.values()))} documents, {len(failures)} failures")
    return 1 if failures else 0


def between(found):
    """Pods are found by the service, and the engine is more patient than the drain."""
    service = found["Service"][0]
    for owner in found["StatefulSet"] + found["DaemonSet"]:
        template = owner["spec"]["template"]
        labels = template["metadata"]["labels"].items()
        if not service["spec"]["selector"].items() <= labels:
            yield f"{owner['kind']}: the service does not select its pods"
        container = template["spec"]["containers"][0]
        command = container["lifecycle"]["preStop"]["exec"]["command"]
        deadline = int(command[command.index("--deadline") + 1].removesuffix("s"))
        if template["spec"]["terminationGracePeriodSeconds"] < deadline + 10:
            yield f"{owner['kind']}: it is killed before its drain can end"


if __name__ == "__main__":
    sys.exit(main())
