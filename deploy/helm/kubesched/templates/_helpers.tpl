{{- define "kubesched.fullname" -}}
{{- if contains "kubesched" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-kubesched" .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "kubesched.selector" -}}
app.kubernetes.io/name: kubesched
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kubesched.labels" -}}
{{ include "kubesched.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "kubesched.schedulerName" -}}
{{- .Values.schedulerName | default (ternary "default-scheduler" "kubesched" (eq .Values.mode "replacement")) }}
{{- end }}

{{- define "kubesched.leaseName" -}}
{{- .Values.leaseName | default (ternary "kube-scheduler" "kubesched" (eq .Values.mode "replacement")) }}
{{- end }}

{{- define "kubesched.config" -}}
{{- $election := dict "leaderElect" true "resourceName" (include "kubesched.leaseName" .) "resourceNamespace" "kube-system" }}
{{- $profile := merge (dict "schedulerName" (include "kubesched.schedulerName" .)) .Values.profile }}
{{- $own := dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration" }}
{{- toYaml (merge $own (dict "leaderElection" $election "profiles" (list $profile)) .Values.config) }}
{{- end }}
