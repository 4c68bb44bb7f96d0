{{/*
The templates use only what `fairlead install` knows too (internal/install/manifest):
include, toYaml, fromYaml, toJson, nindent, quote, default, dict, contains, sha256sum,
and text/template itself.
*/}}
{{- define "fairlead.labels" -}}
app.kubernetes.io/name: fairlead
app.kubernetes.io/part-of: fairlead
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
{{- end }}

{{- define "fairlead.selector" -}}
app.kubernetes.io/name: fairlead
app.kubernetes.io/component: agent
{{- end }}

{{- define "fairlead.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "fairlead.ovnImage" -}}
{{ .Values.ovn.ovnImage }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Environment that leads to the API server where kube-proxy does not. */}}
{{- define "fairlead.kubernetesService" -}}
{{- with .Values.kubernetesService.host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ . | quote }}
{{- end }}
{{- with .Values.kubernetesService.port }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Endpoints of central's members: .members is node -> address, .port theirs. */}}
{{- define "fairlead.endpoints" -}}
{{- $comma := "" }}{{ range .members }}{{ $comma }}ssl:{{ if contains ":" . }}[{{ . }}]{{ else }}{{ . }}{{ end }}:{{ $.port }}{{ $comma = "," }}{{ end }}
{{- end }}
{{- define "fairlead.members" -}}
{{- $comma := "" }}{{ range .Values.ovn.central.members }}{{ $comma }}{{ . }}{{ $comma = "," }}{{ end }}
{{- end }}
{{- define "fairlead.nb" -}}
{{ if .Values.ovn.central.members }}{{ include "fairlead.endpoints" (dict "members" .Values.ovn.central.members "port" 6641) }}{{ else }}{{ .Values.ovn.nb }}{{ end }}
{{- end }}
{{- define "fairlead.sb" -}}
{{ if .Values.ovn.central.members }}{{ include "fairlead.endpoints" (dict "members" .Values.ovn.central.members "port" 6642) }}{{ else }}{{ .Values.ovn.remote }}{{ end }}
{{- end }}

{{/*
Annotations <provider>.kubernetes.io/FIELD[.INTERFACE] that are requests, by the
subresource of subnets that allows them. `subnet` is the resource itself.
api/v1 has the fields; a test compares.
*/}}
{{- define "fairlead.requestFields" -}}
address: ip_address|ip_pool|cidr|gateway|routes|port_vips|vip|aaps
mac: mac_address
rate: ingress_rate|egress_rate|ingress_burst|egress_burst|latency|jitter|limit|loss
security: port_security|security_groups
subnet: logical_switch
vlan: vlan_id|provider_network|network_type
{{- end }}

{{- define "fairlead.requestKeys" -}}
r'\.kubernetes\.io/({{ range $kind, $fields := include "fairlead.requestFields" . | fromYaml }}{{ $fields }}|{{ end }}allocated|routed|declared)(\..+)?$'
{{- end }}

{{/*
The same in an element of the multi-network standard, at whatever depth: plugins
read cni-args too. What else stands in cni-args is of kind args.
*/}}
{{- define "fairlead.elementFields" -}}
address: ips?|ip_addresses|addresses|gateways?|routes
device: deviceID|pciBusID
mac: mac|infiniband-guid|infinibandGUID|guid
port: portMappings
rate: bandwidth|(in|e)gress(Rate|Burst)|m(in|ax)_tx_rate
vlan: vlan[a-z_-]*
{{- end }}

{{/*
Where the agent looks for networks, and the namespace (CEL) of one that names
none: the pod's own, or Multus' for the default network.
*/}}
{{- define "fairlead.networkKeys" -}}
networks: {key: k8s.v1.cni.cncf.io/networks, home: request.namespace}
instead: {key: v1.multus-cni.io/default-network, home: "'{{ index .Values.config "multusNamespace" | default "kube-system" }}'"}
{{- end }}
{{- define "fairlead.networkKeyList" -}}
['k8s.v1.cni.cncf.io/networks', 'v1.multus-cni.io/default-network']
{{- end }}
{{- define "fairlead.globalNamespaces" -}}
{{ index .Values.config "globalNamespaces" | default "default" | toJson }}.split(',').map(n, n.trim())
{{- end }}

{{/*
A list of objects, an object of it, and a key with its value. CEL has no reader
of JSON, so the policy reads a part of JSON that regular expressions can: no
escapes, so that each text ends at the next quotation mark, and values of at
most three levels. Brackets and commas may be wrong in what they match: the
agent refuses what is no JSON, and in JSON they can stand nowhere else. What is
not of this part counts as one object that asks for all (*).
*/}}
{{- define "fairlead.jsonFlat" -}}[^{}\[\]"\\]|"[^"\\]*"{{- end }}
{{- define "fairlead.json1" -}}[{\[](?:{{ include "fairlead.jsonFlat" . }})*[}\]]{{- end }}
{{- define "fairlead.json2" -}}[{\[](?:{{ include "fairlead.jsonFlat" . }}|{{ include "fairlead.json1" . }})*[}\]]{{- end }}
{{- define "fairlead.json3" -}}[{\[](?:{{ include "fairlead.jsonFlat" . }}|{{ include "fairlead.json2" . }})*[}\]]{{- end }}
{{- define "fairlead.member" -}}
"[^"\\]*"\s*:\s*(?:"[^"\\]*"|[^\s"{}\[\],:\\]+|{{ include "fairlead.json3" . }})
{{- end }}
{{- define "fairlead.element" -}}
\{(?:\s*{{ include "fairlead.member" . }}\s*,?)*\s*\}
{{- end }}
{{- define "fairlead.elements" -}}
^\s*\[(?:\s*{{ include "fairlead.element" . }}\s*,?)*\s*\]\s*$
{{- end }}

{{/* Who may ask networks for one kind of thing. */}}
{{- define "fairlead.elementRule" -}}
- expression: |-
    variables.{{ .kind }}Elements.all(e, e.names.all(n, e.namespaces.all(ns,
      variables.rights.group('k8s.cni.cncf.io').resource('network-attachment-definitions').subresource('{{ .kind }}').namespace(ns).name(n).check('use').allowed())))
  reason: Forbidden
  messageExpression: |-
    'service account ' + request.namespace + '/' + variables.account +
    ' may not ask networks for {{ .kind }}: it needs verb use on network-attachment-definitions/{{ .kind }} (k8s.cni.cncf.io) of each network that it asks'
{{- with .subnets }}
- expression: |-
    variables.{{ $.kind }}Elements.size() == 0 || variables.elsewhere.all(s,
      variables.rights.group('kubeovn.io').resource('subnets').subresource('{{ $.kind }}').name(s).check('use').allowed())
  reason: Forbidden
  messageExpression: |-
    'service account ' + request.namespace + '/' + variables.account +
    ' may not ask networks for {{ $.kind }} in the subnets that it names: it needs verb use on subnets/{{ $.kind }} (kubeovn.io) of ' + variables.elsewhere.join(', ')
{{- end }}
{{- end }}

{{- define "fairlead.requestsBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels: {{- include "fairlead.labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: {{- toYaml .root.Values.policies.requests.actions | nindent 4 }}
  {{- with .root.Values.policies.requests.exemptNamespaces }}
  matchResources:
    namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: NotIn
          values: {{- toYaml . | nindent 12 }}
  {{- end }}
{{- end }}

{{/* Namespaces whose ConfigMaps declare settings of pods. */}}
{{- define "fairlead.podNetworkNamespaces" -}}
{{- .Values.namespace }}{{- range .Values.podNetworks.namespaces }},{{ . }}{{- end }}
{{- end }}

{{/* The right to read the ConfigMaps of one: they may not be chosen by label. */}}
{{- define "fairlead.podNetworkRole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: fairlead-pod-networks
  namespace: {{ .namespace }}
  labels: {{- include "fairlead.labels" .root | nindent 4 }}
rules:
  - apiGroups: [""]
    resources: [configmaps]
    verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: fairlead-pod-networks
  namespace: {{ .namespace }}
  labels: {{- include "fairlead.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: fairlead-pod-networks
subjects:
  - kind: ServiceAccount
    name: {{ .root.Values.serviceAccount.name }}
    namespace: {{ .root.Values.namespace }}
  {{- if .root.Values.rbac.nodeCertificates }}
  - apiGroup: rbac.authorization.k8s.io
    kind: Group
    name: system:fairlead
  {{- end }}
  {{- if .root.Values.ovn.enabled }}
  - kind: ServiceAccount
    name: fairlead-controller
    namespace: {{ .root.Values.namespace }}
  {{- end }}
{{- end }}

{{/* Where a policy about devices looks for its objects: the pod's namespace ("") or another. */}}
{{- define "fairlead.devicesBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  name: {{ .policy }}{{ if .namespace }}-{{ .namespace }}{{ end }}
  labels: {{- include "fairlead.labels" .root | nindent 4 }}
spec:
  policyName: {{ .policy }}
  paramRef:
    {{- if .namespace }}
    namespace: {{ .namespace }}
    {{- end }}
    selector: {{ "{" }}{{ if .label }}matchLabels: {{ "{" }}{{ .label }}: "true"{{ "}" }}{{ end }}{{ "}" }}
    parameterNotFoundAction: Allow
{{- end }}
