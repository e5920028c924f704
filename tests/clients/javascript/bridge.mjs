// Does with the JavaScript client what each line of JSON on standard input asks, and answers with
// one line: {result} or {refused: {code, reason}}. Lines {watch, event} come as changes happen.
import { createInterface } from 'node:readline';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);
const core = config.makeApiClient(k8s.CoreV1Api);
const metrics = new k8s.Metrics(config);
const namespace = process.argv[3];
const path = `/api/v1/namespaces/${namespace}/pods`;
const watches = new Map();

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const sent = (kind) => k8s.setHeaderOptions('Content-Type', kind);
const model = (tree) => k8s.loadYaml(JSON.stringify(tree)); // with dates, as the client has them

const commands = {
  create: async ({ pod }) => core.createNamespacedPod({ namespace, body: model(pod) }),
  get: async ({ name }) => core.readNamespacedPod({ namespace, name }),
  replace: async ({ pod }) =>
    core.replaceNamespacedPod({ namespace, name: pod.metadata.name, body: model(pod) }),
  list: async ({ labels, fields, limit, token }) => {
    const list = await core.listNamespacedPod({
      namespace,
      labelSelector: labels,
      fieldSelector: fields,
      limit,
      _continue: token,
    });
    return {
      names: list.items.map((pod) => pod.metadata.name),
      version: list.metadata.resourceVersion,
      token: list.metadata._continue ?? '',
    };
  },
  patch: async ({ name, kind, body }) =>
    core.patchNamespacedPod({ namespace, name, body }, sent(kind)),
  resize: async ({ name, kind, body }) =>
    core.patchNamespacedPodResize({ namespace, name, body }, sent(kind)),
  delete: async ({ name }) => {
    await core.deleteNamespacedPod({ namespace, name, gracePeriodSeconds: 0 });
    return null;
  },
  watch: async ({ watch, labels, version }) => {
    const changed = (type, pod) => say({ watch, event: { type, pod } });
    const ended = (error) => say({ watch, ended: error ? refusal(error) : null });
    const query = { labelSelector: labels, resourceVersion: version, timeoutSeconds: 30 };
    watches.set(watch, await new k8s.Watch(config).watch(path, query, changed, ended));
    return null;
  },
  unwatch: async ({ watch }) => {
    watches.get(watch).abort();
    watches.delete(watch);
    return null;
  },
  // An informer that believes to know `version`, until it has seen the pod `name`.
  inform: ({ name, version, labels }) =>
    new Promise((found, failed) => {
      const list = () => core.listNamespacedPod({ namespace, labelSelector: labels });
      const informer = new k8s.ListWatch(path, new k8s.Watch(config), list, false, labels);
      informer.resourceVersion = version;
      informer.on('error', failed);
      informer.on('add', (pod) => {
        if (pod.metadata.name === name) {
          informer.stop().then(() => found(informer.list().map((one) => one.metadata.name)));
        }
      });
      informer.start().catch(failed);
    }),
  pod_metrics: async () => (await metrics.getPodMetrics(namespace)).items,
};

function refusal(error) {
  let status = error.body ?? {};
  if (typeof status === 'string') {
    status = JSON.parse(status);
  }
  return { code: error.code ?? error.statusCode ?? 0, reason: status.reason ?? error.message };
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  try {
    say({ result: await commands[asked.do](asked) });
  } catch (error) {
    say({ refused: refusal(error) });
  }
}
process.exit(0);
