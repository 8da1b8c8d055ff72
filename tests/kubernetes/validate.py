"""Validates Kubernetes objects against the schemas of the package kubernetes-validate, which know every field. Reads a list of
objects (JSON) from standard input, and prints a list with the first mistake of each, null if there is none."""

import json
import sys

import kubernetes_validate


def mistake(thing):
    try:
        kubernetes_validate.validate(thing, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'/'.join(map(str, error.path))}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        return f"no schema: {error}"
    return None


print(json.dumps([mistake(thing) for thing in json.load(sys.stdin)]))
