// Validates Kubernetes objects against the schemas of the package kubernetes-models. Reads a list of objects (JSON) from
// standard input, and prints a list of lists of mistakes. An object's fields that its schema does not know are mistakes,
// too: the generated validators read every field that they know, so the other fields stay unread.
import { readFileSync } from "node:fs";

const SCHEMAS = {
  "v1 Secret": "IoK8sApiCoreV1Secret",
  "v1 Service": "IoK8sApiCoreV1Service",
  "batch/v1 Job": "IoK8sApiBatchV1Job",
};

/// Returns the object in a wrapper that notes in `read` which fields were read.
function watched(value, path, read) {
  if (value === null || typeof value !== "object") return value;
  return new Proxy(value, {
    get(target, key) {
      if (typeof key !== "string") return target[key];
      read.add(`${path}/${key}`);
      return typeof target[key] === "function" ? target[key] : watched(target[key], `${path}/${key}`, read);
    },
    ownKeys(target) {
      for (const key of Object.keys(target)) read.add(`${path}/${key}`);
      return Reflect.ownKeys(target);
    },
  });
}

function unread(value, path, read) {
  if (value === null || typeof value !== "object") return [];
  return Object.keys(value).flatMap((key) =>
    read.has(`${path}/${key}`) ? unread(value[key], `${path}/${key}`, read) : [`${path}/${key}: unknown field`]);
}

async function mistakes(object) {
  const name = SCHEMAS[`${object.apiVersion} ${object.kind}`];
  if (name === undefined) return [`no schema for ${object.apiVersion} ${object.kind}`];
  const { validate } = await import(new URL(`./node_modules/kubernetes-models/_schemas/${name}.mjs`, import.meta.url));
  const read = new Set();
  const valid = validate(watched(object, "", read));
  const wrong = valid ? [] : validate.errors.map((error) => `${error.instancePath}: ${error.message ?? error.keyword}`);
  return [...wrong, ...unread(object, "", read)];
}

const objects = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(await Promise.all(objects.map(mistakes))));
