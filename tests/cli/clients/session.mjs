// What users of the JavaScript client do: lists, an informer, a conflict, a patch, a deletion.
import { createRequire } from 'node:module';
const require = createRequire(`${process.argv[2]}/`);
const k8s = require('@kubernetes/client-node');

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const namespace = 'default';
const seen = [];

async function until(condition) {
  for (let turn = 0; turn < 600; turn++) {
    if (condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`it did not come about: ${seen}`);
}

console.log(`nodes ${(await core.listNode()).items.length}`);
const informer = k8s.makeInformer(config, '/api/v1/namespaces/default/pods', () => core.listNamespacedPod({ namespace }));
for (const event of ['add', 'update', 'delete']) {
  informer.on(event, (pod) => seen.push(`${event} ${pod.metadata.name} ${pod.status.phase}`));
}
await informer.start();
const body = { metadata: { name: 'js' }, spec: { containers: [{ name: 'main', image: 'app:1' }] } };
await core.createNamespacedPod({ namespace, body });
await until(() => seen.includes('update js Running'));
await core.createNamespacedPod({ namespace, body }).catch((error) => console.log(`refused ${error.code}`));
const labels = [{ op: 'add', path: '/metadata/labels', value: { a: 'b' } }];
const patched = await core.patchNamespacedPod({ name: 'js', namespace, body: labels });
console.log(`label ${patched.metadata.labels.a}`);
await core.deleteNamespacedPod({ name: 'js', namespace });
await until(() => seen.some((line) => line.startsWith('delete js')));
await informer.stop();
console.log('done');
