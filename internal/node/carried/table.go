package carried

// how a field is treated.
type how int

const (
	unlisted how = iota
	carriedOut
	scheduler // carried out before the pod came here; a pod of a file has nobody who would
	warned
	refused
)

type rule struct {
	how    how
	why    string             // it is not carried out, and what to do
	except []string           // values that ask for nothing that is not done
	can    func(Machine) bool // it is carried out on such a machine
}

func (r rule) listed() bool { return r.how != unlisted }

// Reasons that several fields have.
const (
	noVolume  = "volumes of this kind are not supported on this node"
	noWindows = "the node runs Linux"
	noClaims  = "devices of resource claims are not supported on this node"
	noCgroup  = "pods have cgroups of their own only with --cgroup-root"
)

// table has each field of a pod's spec, by its JSON path; name says which fields
// share a place. A rule that refuses or warns is about all below its path, one that
// carries out about this field alone: so a field that is new somewhere is not
// carried out until it stands here.
var table = build()

func build() map[string]rule {
	out := map[string]rule{}
	for _, path := range done {
		out[path] = rule{how: carriedOut}
	}
	for _, path := range scheduled {
		out[path] = rule{how: scheduler}
	}
	for _, path := range foreignVolumes {
		out["volumes[]."+path] = rule{how: refused, why: noVolume}
	}
	for path, r := range told {
		out[path] = r
	}
	return out
}

// told are the fields that are not carried out, or not always.
var told = map[string]rule{
	"hostUsers": {how: refused, except: []string{"true"},
		why: "user namespaces are not supported on this node; without one the pod's root would be the node's: leave the field out to run it so"},
	"os.name":                        {how: refused, why: noWindows, except: []string{"linux"}},
	"securityContext.windowsOptions": {how: warned, why: noWindows},
	"containers[].securityContext.windowsOptions":       {how: warned, why: noWindows},
	"securityContext.appArmorProfile.type":              appArmor,
	"containers[].securityContext.appArmorProfile.type": appArmor,
	"securityContext.seLinuxChangePolicy":               {how: warned, why: "volumes are not relabelled", except: []string{"MountOption"}},
	"securityContext.fsGroupChangePolicy": {how: warned, except: []string{"Always"},
		why: "it has no effect: the volumes of this node are made for the pod, with its group"},
	"priorityClassName":             {how: warned, why: "priorities have no effect on this node: no pod is ended for another one"},
	"priority":                      {how: warned, why: "priorities have no effect on this node: no pod is ended for another one", except: []string{"0"}},
	"resourceClaims":                {how: refused, why: noClaims},
	"resources.claims":              {how: refused, why: noClaims},
	"resources.limits":              {how: warned, why: noCgroup, can: func(m Machine) bool { return m.PodCgroups }},
	"resources.requests":            {how: warned, why: noCgroup, can: func(m Machine) bool { return m.PodCgroups }},
	"enableServiceLinks":            {how: warned, why: "containers get no variables of services; they find these by DNS", except: []string{"true", "false"}},
	"schedulingGates":               {how: refused, why: "a pod with scheduling gates is not to run yet"},
	"containers[].volumeDevices":    {how: refused, why: "block devices are not supported on this node"},
	"containers[].resources.claims": {how: refused, why: noClaims},
	"containers[].resources.limits{ephemeral-storage}": {how: warned, why: "it is not kept; sizeLimit of an emptyDir is"},
	"containers[].resizePolicy[].restartPolicy":        {how: warned, why: "new resources make a new instance of the container", except: []string{"NotRequired", "RestartContainer"}},
	"containers[].env[].valueFrom.fileKeyRef":          {how: refused, why: "variables from files of volumes are not supported on this node"},
	"containers[].lifecycle.hook.tcpSocket":            {how: refused, why: "a hook cannot connect: use httpGet or exec"},
	"containers[].restartPolicyRules[].action":         {how: refused, why: "this action is not supported on this node", except: []string{"Restart"}},
	"volumes[].emptyDir.medium":                        {how: refused, why: "an emptyDir is on the disk or in Memory", except: []string{"Memory"}},
	"volumes[].projected.sources[].clusterTrustBundle": {how: refused, why: noVolume},
	"volumes[].projected.sources[].podCertificate":     {how: refused, why: noVolume},
}

var appArmor = rule{how: refused, except: []string{"Unconfined"}, can: func(m Machine) bool { return m.AppArmor },
	why: "the kernel of this node does not enforce AppArmor profiles"}

// scheduled are the fields by which others decide where a pod runs.
var scheduled = []string{
	"affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution", "affinity.podAffinity", "affinity.podAntiAffinity",
	"topologySpreadConstraints", "preemptionPolicy", "schedulingGroup",
}

// foreignVolumes are of storage providers and registries.
var foreignVolumes = []string{
	"awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "ephemeral", "fc", "flexVolume", "flocker",
	"gcePersistentDisk", "gitRepo", "glusterfs", "image", "iscsi", "nfs", "persistentVolumeClaim", "photonPersistentDisk",
	"portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
}

// done are the fields that are carried out, here, by the runtime, or (tolerations,
// schedulerName, automountServiceAccountToken) by the API server's side before.
var done = []string{
	"restartPolicy", "terminationGracePeriodSeconds", "activeDeadlineSeconds", "dnsPolicy", "nodeSelector{}", "serviceAccountName",
	"serviceAccount", "automountServiceAccountToken", "nodeName", "hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace",
	"imagePullSecrets[].name", "hostname", "subdomain", "schedulerName", "hostAliases[].ip", "hostAliases[].hostnames[]",
	"tolerations[].key", "tolerations[].operator", "tolerations[].value", "tolerations[].effect", "tolerations[].tolerationSeconds",
	"dnsConfig.nameservers[]", "dnsConfig.searches[]", "dnsConfig.options[].name", "dnsConfig.options[].value",
	"readinessGates[].conditionType", "runtimeClassName", "overhead{}", "overhead{cpu}", "overhead{memory}", "overhead{ephemeral-storage}",
	"setHostnameAsFQDN", "hostnameOverride",
	"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchExpressions[].key",
	"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchExpressions[].operator",
	"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchExpressions[].values[]",
	"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchFields[].key",
	"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchFields[].operator",
	"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchFields[].values[]",

	"securityContext.seLinuxOptions.user", "securityContext.seLinuxOptions.role", "securityContext.seLinuxOptions.type",
	"securityContext.seLinuxOptions.level", "securityContext.runAsUser", "securityContext.runAsGroup", "securityContext.runAsNonRoot",
	"securityContext.supplementalGroups[]", "securityContext.supplementalGroupsPolicy", "securityContext.fsGroup",
	"securityContext.sysctls[].name", "securityContext.sysctls[].value", "securityContext.seccompProfile.type",
	"securityContext.seccompProfile.localhostProfile", "securityContext.appArmorProfile.localhostProfile",

	"containers[].name", "containers[].image", "containers[].command[]", "containers[].args[]", "containers[].workingDir",
	"containers[].targetContainerName",
	"containers[].ports[].name", "containers[].ports[].hostPort", "containers[].ports[].containerPort", "containers[].ports[].protocol",
	"containers[].ports[].hostIP", "containers[].envFrom[].prefix", "containers[].envFrom[].configMapRef.name",
	"containers[].envFrom[].configMapRef.optional", "containers[].envFrom[].secretRef.name", "containers[].envFrom[].secretRef.optional",
	"containers[].env[].name", "containers[].env[].value", "containers[].env[].valueFrom.fieldRef.apiVersion",
	"containers[].env[].valueFrom.fieldRef.fieldPath", "containers[].env[].valueFrom.resourceFieldRef.containerName",
	"containers[].env[].valueFrom.resourceFieldRef.resource", "containers[].env[].valueFrom.resourceFieldRef.divisor",
	"containers[].env[].valueFrom.configMapKeyRef.name", "containers[].env[].valueFrom.configMapKeyRef.key",
	"containers[].env[].valueFrom.configMapKeyRef.optional", "containers[].env[].valueFrom.secretKeyRef.name",
	"containers[].env[].valueFrom.secretKeyRef.key", "containers[].env[].valueFrom.secretKeyRef.optional",
	// Resources of other names are those of the node: a pod that asks for more than there is, is not admitted.
	"containers[].resources.limits{}", "containers[].resources.limits{cpu}", "containers[].resources.limits{memory}",
	"containers[].resources.requests{}", "containers[].resources.requests{cpu}", "containers[].resources.requests{memory}",
	"containers[].resources.requests{ephemeral-storage}", "containers[].resizePolicy[].resourceName",
	"containers[].restartPolicy", "containers[].restartPolicyRules[].exitCodes.operator", "containers[].restartPolicyRules[].exitCodes.values[]",
	"containers[].volumeMounts[].name", "containers[].volumeMounts[].readOnly", "containers[].volumeMounts[].recursiveReadOnly",
	"containers[].volumeMounts[].mountPath", "containers[].volumeMounts[].subPath", "containers[].volumeMounts[].mountPropagation",
	"containers[].volumeMounts[].subPathExpr", "containers[].terminationMessagePath", "containers[].terminationMessagePolicy",
	"containers[].imagePullPolicy", "containers[].stdin", "containers[].stdinOnce", "containers[].tty",
	"containers[].probe.exec.command[]", "containers[].probe.httpGet.path", "containers[].probe.httpGet.port",
	"containers[].probe.httpGet.host", "containers[].probe.httpGet.scheme", "containers[].probe.httpGet.httpHeaders[].name",
	"containers[].probe.httpGet.httpHeaders[].value", "containers[].probe.tcpSocket.port", "containers[].probe.tcpSocket.host",
	"containers[].probe.grpc.port", "containers[].probe.grpc.service", "containers[].probe.initialDelaySeconds",
	"containers[].probe.timeoutSeconds", "containers[].probe.periodSeconds", "containers[].probe.successThreshold",
	"containers[].probe.failureThreshold", "containers[].probe.terminationGracePeriodSeconds",
	"containers[].lifecycle.hook.exec.command[]", "containers[].lifecycle.hook.httpGet.path", "containers[].lifecycle.hook.httpGet.port",
	"containers[].lifecycle.hook.httpGet.host", "containers[].lifecycle.hook.httpGet.scheme",
	"containers[].lifecycle.hook.httpGet.httpHeaders[].name", "containers[].lifecycle.hook.httpGet.httpHeaders[].value",
	"containers[].lifecycle.hook.sleep.seconds", "containers[].lifecycle.stopSignal",
	"containers[].securityContext.capabilities.add[]", "containers[].securityContext.capabilities.drop[]",
	"containers[].securityContext.privileged", "containers[].securityContext.seLinuxOptions.user",
	"containers[].securityContext.seLinuxOptions.role", "containers[].securityContext.seLinuxOptions.type",
	"containers[].securityContext.seLinuxOptions.level", "containers[].securityContext.runAsUser",
	"containers[].securityContext.runAsGroup", "containers[].securityContext.runAsNonRoot",
	"containers[].securityContext.readOnlyRootFilesystem", "containers[].securityContext.allowPrivilegeEscalation",
	"containers[].securityContext.procMount", "containers[].securityContext.seccompProfile.type",
	"containers[].securityContext.seccompProfile.localhostProfile", "containers[].securityContext.appArmorProfile.localhostProfile",

	"volumes[].name", "volumes[].hostPath.path", "volumes[].hostPath.type", "volumes[].emptyDir.sizeLimit",
	"volumes[].secret.secretName", "volumes[].secret.items[].key", "volumes[].secret.items[].path", "volumes[].secret.items[].mode",
	"volumes[].secret.defaultMode", "volumes[].secret.optional",
	"volumes[].configMap.name", "volumes[].configMap.items[].key", "volumes[].configMap.items[].path", "volumes[].configMap.items[].mode",
	"volumes[].configMap.defaultMode", "volumes[].configMap.optional",
	"volumes[].downwardAPI.items[].path", "volumes[].downwardAPI.items[].fieldRef.apiVersion",
	"volumes[].downwardAPI.items[].fieldRef.fieldPath", "volumes[].downwardAPI.items[].resourceFieldRef.containerName",
	"volumes[].downwardAPI.items[].resourceFieldRef.resource", "volumes[].downwardAPI.items[].resourceFieldRef.divisor",
	"volumes[].downwardAPI.items[].mode", "volumes[].downwardAPI.defaultMode", "volumes[].projected.defaultMode",
	"volumes[].projected.sources[].secret.name", "volumes[].projected.sources[].secret.items[].key",
	"volumes[].projected.sources[].secret.items[].path", "volumes[].projected.sources[].secret.items[].mode",
	"volumes[].projected.sources[].secret.optional", "volumes[].projected.sources[].configMap.name",
	"volumes[].projected.sources[].configMap.items[].key", "volumes[].projected.sources[].configMap.items[].path",
	"volumes[].projected.sources[].configMap.items[].mode", "volumes[].projected.sources[].configMap.optional",
	"volumes[].projected.sources[].downwardAPI.items[].path", "volumes[].projected.sources[].downwardAPI.items[].fieldRef.apiVersion",
	"volumes[].projected.sources[].downwardAPI.items[].fieldRef.fieldPath",
	"volumes[].projected.sources[].downwardAPI.items[].resourceFieldRef.containerName",
	"volumes[].projected.sources[].downwardAPI.items[].resourceFieldRef.resource",
	"volumes[].projected.sources[].downwardAPI.items[].resourceFieldRef.divisor",
	"volumes[].projected.sources[].downwardAPI.items[].mode", "volumes[].projected.sources[].serviceAccountToken.audience",
	"volumes[].projected.sources[].serviceAccountToken.expirationSeconds", "volumes[].projected.sources[].serviceAccountToken.path",
}
