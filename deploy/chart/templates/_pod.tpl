{{- define "gateway.labels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "gateway.command" -}}
{{- if eq .name "migrate" -}}
["python", "manage.py", "migrate", "--no-input", "--wait=120"]
{{- else -}}
{{- $web := ternary (list "--host=0.0.0.0" "--port=8000") (list) (has "web" .process.roles) -}}
{{ concat (list "python" "-m" "gateway") .process.roles $web | toJson }}
{{- end -}}
{{- end }}

{{- define "gateway.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "gateway.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "gateway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Helm reads numbers as floats. `quote` alone would write large ones as 1e+06. */ -}}
{{- define "gateway.text" -}}
{{ ternary (toJson .) . (kindIs "float64" .) | quote }}
{{- end }}

{{- define "gateway.settings" -}}
ENVIRONMENT: production
DATA_DIR: /data
DATABASE_PREPARED_STATEMENTS: {{ .Values.preparedStatements | quote }}
{{- range $name, $value := .Values.settings }}
{{ $name }}: {{ include "gateway.text" $value }}
{{- end }}
{{- end }}

{{- define "gateway.pod" -}}
{{- $isWeb := and .process (has "web" .process.roles) -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
automountServiceAccountToken: false
# The five seconds of preStop count too.
terminationGracePeriodSeconds: 50
securityContext: {{ include "gateway.podSecurity" .root | nindent 2 }}
{{- if ne .name "migrate" }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "gateway.labels" . | nindent 8 }}
{{- end }}
containers:
  - name: {{ .name }}
    image: {{ include "gateway.image" .root | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    command: {{ include "gateway.command" . }}
    {{- if ne .name "migrate" }}
    envFrom:
      - configMapRef: {name: {{ .root.Release.Name }}-settings}
    {{- end }}
    env:
      {{- /* The hook runs before the release's ConfigMap exists, so it has the settings itself. */ -}}
      {{- if eq .name "migrate" }}
      {{- range $name, $value := fromYaml (include "gateway.settings" .root) }}
      - {name: {{ $name }}, value: {{ $value | quote }}}
      {{- end }}
      {{- end }}
      {{- $direct := ternary .root.Values.migration.databaseUrlKey "DATABASE_URL" (eq .name "migrate") }}
      {{- range .root.Values.secret.keys }}
      - {name: {{ . }}_FILE, value: /run/secrets/gateway/{{ ternary $direct . (eq . "DATABASE_URL") }}}
      {{- end }}
    securityContext: {{ include "gateway.containerSecurity" .root | nindent 6 }}
    {{- with .process }}
    resources: {{ toYaml .resources | nindent 6 }}
    {{- end }}
    {{- if $isWeb }}
    ports:
      - {name: http, containerPort: 8000}
    startupProbe:
      httpGet: {path: /v1/health/live, port: http}
      periodSeconds: 2
      failureThreshold: 45
    livenessProbe:
      httpGet: {path: /v1/health/live, port: http}
      periodSeconds: 10
      timeoutSeconds: 5
    readinessProbe:
      httpGet: {path: /v1/health/ready, port: http}
      periodSeconds: 5
      timeoutSeconds: 5
    lifecycle:
      preStop:
        # Until the load balancer has stopped sending requests to this pod.
        exec: {command: [sleep, "5"]}
    {{- end }}
    volumeMounts:
      - {name: secrets, mountPath: /run/secrets/gateway, readOnly: true}
      - {name: tmp, mountPath: /tmp}
      - {name: data, mountPath: /data}
      {{- with .root.Values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: secrets
    secret: {secretName: {{ .root.Values.secret.name }}}
  - name: tmp
    emptyDir: {}
  {{- if not $isWeb }}
  - name: data
    emptyDir: {}
  {{- end }}
  {{- with .root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
