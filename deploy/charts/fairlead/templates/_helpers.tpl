{{/*
The templates use only what `fairlead install` knows too (internal/manifest):
include, toYaml, fromYaml, toJson, nindent, quote, default, dict, sha256sum, and
text/template itself.
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

{{/*
Annotations <provider>.kubernetes.io/FIELD[.INTERFACE] that are requests, by the
subresource of subnets that allows them. `subnet` is the resource itself.
api/v1 has the fields; a test compares.
*/}}
{{- define "fairlead.requestFields" -}}
address: ip_address|ip_pool|cidr|gateway|routes
mac: mac_address
rate: ingress_rate|egress_rate|ingress_burst|egress_burst|latency|jitter|limit|loss
subnet: logical_switch
vlan: vlan_id|provider_network|network_type
{{- end }}

{{- define "fairlead.requestKeys" -}}
r'\.kubernetes\.io/({{ range $kind, $fields := include "fairlead.requestFields" . | fromYaml }}{{ $fields }}|{{ end }}allocated|routed)(\..+)?$'
{{- end }}

{{/* The same in an element of the multi-network standard. */}}
{{- define "fairlead.elementFields" -}}
address: ips
mac: mac|infiniband-guid
rate: bandwidth
vlan: vlan[a-z_-]*
{{- end }}

{{/*
An element of a JSON list, and a whole list: objects that hold objects that hold
objects. No text of an element holds braces (the policy looks first).
*/}}
{{- define "fairlead.element" -}}
r'\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}'
{{- end }}
{{- define "fairlead.elements" -}}
r'^\s*\[(?:\s*\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}\s*,?)*\s*\]\s*$'
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
