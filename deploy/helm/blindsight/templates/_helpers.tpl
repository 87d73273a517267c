{{- define "blindsight.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "blindsight.selector" -}}
app.kubernetes.io/name: blindsight
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "blindsight.labels" -}}
{{ include "blindsight.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "blindsight.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "blindsight.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "blindsight.scheme" -}}
{{- with .Values.config.export.tls -}}
{{- if .client_ca }}{{ fail "config.export.tls.client_ca: the kubelet has no certificate to probe with; guard by tokens" }}{{ end -}}
, scheme: HTTPS
{{- end -}}
{{- end -}}

{{- define "blindsight.endpoint" -}}
port: metrics
path: /metrics
interval: {{ .monitor.interval }}
{{- if .export.tls }}
scheme: https
{{- end }}
{{- if and .export.tokens (not (or .monitor.endpoint.authorization .monitor.endpoint.basicAuth)) }}
{{- fail "config.export.tokens: give the monitor's endpoint an authorization, as Prometheus needs a token" }}
{{- end }}
{{- with .monitor.endpoint }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Whether the agent writes files; with all of its state in a database it need not. */}}
{{- define "blindsight.files" -}}
{{- if or (ne .Values.mode "standby") (.Values.config.reports | default dict).path (.Values.config.rejects | default dict).path -}}
true
{{- end -}}
{{- end -}}

{{- define "blindsight.pod" -}}
metadata:
  annotations:
    {{- if not .Values.existingConfigMap }}
    checksum/config: {{ toYaml .Values.config | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    {{- include "blindsight.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "blindsight.serviceAccount" . }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 60
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext: {{- include "blindsight.podSecurityContext" . | nindent 4 }}
  {{- with .Values.initContainers }}
  initContainers: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: blindsight
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [run, /etc/blindsight/config.yaml]
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      ports:
        - {name: metrics, containerPort: 9109, protocol: TCP}
        {{- if .Values.ingestPort }}
        - {name: ingest, containerPort: {{ .Values.ingestPort }}, protocol: TCP}
        {{- end }}
      startupProbe:
        httpGet: {path: /-/healthy, port: metrics{{ include "blindsight.scheme" . }}}
        periodSeconds: 2
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /-/healthy, port: metrics{{ include "blindsight.scheme" . }}}
        periodSeconds: 20
        timeoutSeconds: 5
      readinessProbe:
        {{- /* An agent that waits is never ready; where no posts must pass it by, a rollout needs a sign that it does wait. */}}
        httpGet: {path: {{ and (eq .Values.mode "standby") (not .Values.ingestPort) | ternary "/-/healthy" "/-/ready" }}, port: metrics{{ include "blindsight.scheme" . }}}
        periodSeconds: 10
        timeoutSeconds: 5
      {{- with .Values.extraEnv }}
      env: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.extraEnvFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/blindsight, readOnly: true}
        {{- if include "blindsight.files" . }}
        - {name: data, mountPath: /var/lib/blindsight}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
        {{- if eq .Values.mode "sidecar" }}
        - {name: records, mountPath: /records, readOnly: true}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- if eq .Values.mode "sidecar" }}
    - {{- toYaml .Values.sidecar.container | nindent 6 }}
    {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ .Values.existingConfigMap | default (include "blindsight.name" .) }}}
    - name: tmp
      emptyDir: {sizeLimit: 100Mi}
    {{- if eq .Values.mode "sidecar" }}
    - name: records
      emptyDir: {}
    {{- end }}
    {{- if and (include "blindsight.files" .) (or (ne .Values.mode "standalone") (not .Values.persistence.enabled)) }}
    - name: data
      emptyDir: {sizeLimit: {{ .Values.persistence.size }}}
    {{- else if and (eq .Values.mode "standalone") .Values.persistence.existingClaim }}
    - name: data
      persistentVolumeClaim: {claimName: {{ .Values.persistence.existingClaim }}}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .Values.affinity }}
  affinity: {{- toYaml .Values.affinity | nindent 4 }}
  {{- else if eq .Values.mode "standby" }}
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels: {{- include "blindsight.selector" . | nindent 16 }}
  {{- end }}
  {{- if .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range .Values.topologySpreadConstraints }}
    - {{- toYaml . | nindent 6 }}
      {{- if not .labelSelector }}
      labelSelector:
        matchLabels: {{- include "blindsight.selector" $ | nindent 10 }}
      {{- end }}
    {{- end }}
  {{- end }}
{{- end -}}

{{- define "blindsight.podSecurityContext" -}}
{{- if or .Values.openshift (.Capabilities.APIVersions.Has "security.openshift.io/v1") -}}
{{- toYaml (omit .Values.podSecurityContext "runAsUser" "runAsGroup" "fsGroup") -}}
{{- else -}}
{{- toYaml .Values.podSecurityContext -}}
{{- end -}}
{{- end -}}

{{- /* The port of an address, host:port or a URL or a text such as "host=db port=5433"; `standard` if it has none. */}}
{{- define "blindsight.port" -}}
{{- $host := regexReplaceAll "^[a-z0-9+]+://" .address "" | splitList "/" | first | splitList "@" | last -}}
{{- regexFind "[0-9]+" (regexFind "\\bport=[0-9]+" .address | default (regexFind ":[0-9]+$" $host)) | default (printf "%v" .standard) }}
{{ end -}}

{{- /* The ports of all sources, sinks and stores of the configuration, one a line. */}}
{{- define "blindsight.ports" -}}
{{- $kafkas := list (.reports | default dict).kafka (.rejects | default dict).kafka -}}
{{- $urls := list -}}
{{- range .sources -}}
{{- $options := .options | default dict -}}
{{- if eq .kind "kafka" -}}{{- $kafkas = append $kafkas . -}}
{{- else if eq .kind "redis" -}}{{- if not (hasPrefix "unix:" .url) }}{{ include "blindsight.port" (dict "address" .url "standard" 6379) }}{{ end -}}
{{- else if eq .kind "sql" -}}
{{- $driver := .driver | default "psycopg" -}}
{{- if not (hasPrefix "sqlite3" $driver) -}}
{{- $standard := hasPrefix "psycopg" $driver | ternary 5432 "" -}}
{{- include "blindsight.port" (dict "address" (.dsn | default "") "standard" ($options.port | default $standard)) -}}
{{- end -}}
{{- else if and (eq .kind "file") (contains "://" .path) -}}{{- $urls = append $urls ($options.endpoint_url | default .path) -}}
{{- end -}}
{{- end -}}
{{- range compact $kafkas -}}
{{- range .brokers }}{{ include "blindsight.port" (dict "address" . "standard" 9092) }}{{ end -}}
{{- end -}}
{{- range concat $urls ((.alertmanager | default dict).urls | default list) (list ((.export | default dict).otlp | default dict).url) | compact -}}
{{- include "blindsight.port" (dict "address" . "standard" (hasPrefix "http://" . | ternary 80 443)) -}}
{{- end -}}
{{- with (.store | default dict).postgres -}}
{{- $hosts := regexReplaceAll "^[a-z]+://" . "" | splitList "/" | first | splitList "@" | last -}}
{{- range contains "=" . | ternary (list .) (splitList "," $hosts) }}{{ include "blindsight.port" (dict "address" . "standard" 5432) }}{{ end -}}
{{- end -}}
{{- end -}}
