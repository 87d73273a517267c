{{- /* A duration in seconds as Prometheus writes it. */}}
{{- define "blindsight.duration" -}}
{{- $left := int64 (round (mulf . 1000) 0) -}}
{{- range list (list "d" 86400000) (list "h" 3600000) (list "m" 60000) (list "s" 1000) (list "ms" 1) -}}
{{- $count := div $left (last .) -}}
{{- $left = mod $left (last .) -}}
{{- if $count }}{{ $count }}{{ first . }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* The text of a value within a JSON text. */}}
{{- define "blindsight.escaped" -}}
{{- toRawJson . | trimPrefix "\"" | trimSuffix "\"" -}}
{{- end -}}

{{- /* The times of the tasks: of all together if they are alike, as monitor.export.rules.paces computes them. */}}
{{- define "blindsight.paces" -}}
{{- $defaults := .defaults -}}
{{- $names := list -}}
{{- $times := dict -}}
{{- $refits := dict -}}
{{- range $kind := list "classification" "arena" -}}
{{- range $name, $task := $.tasks -}}
{{- $task = $task | default dict -}}
{{- if eq ($task.kind | default "classification") $kind -}}
{{- $window := $task.window | default dict -}}
{{- $ssme := $task.ssme | default dict -}}
{{- if contains "${" (toJson (list $window $ssme $task.models)) -}}
{{- fail (printf "prometheusRule: config.tasks.%s has a variable of the environment, which the chart cannot read; install the rules that `blindsight rules config.yaml --format operator` prints" $name) -}}
{{- end -}}
{{- $size := float64 ($window.size | default $defaults.size) -}}
{{- $least := float64 ($window.min_size | default (minf $size $defaults.min_size)) -}}
{{- $age := float64 ($window.max_age_seconds | default $defaults.max_age_seconds) -}}
{{- $expected := $age -}}
{{- $slowest := $age -}}
{{- $known := list -}}
{{- if and $task.models (kindIs "map" $task.models) -}}
{{- range $task.models -}}
{{- with (. | default dict).answers_per_day }}{{ $known = append $known (float64 .) }}{{ end -}}
{{- end -}}
{{- if eq (len $known) (len $task.models) -}}
{{- $fewest := first $known -}}
{{- range $known }}{{ $fewest = minf $fewest . }}{{ end -}}
{{- $slowest = maxf $age (divf (mulf $least 86400) $fewest) -}}
{{- $expected = minf (divf (mulf $size 86400) $fewest) $slowest -}}
{{- end -}}
{{- end -}}
{{- $expected = maxf 60 $expected -}}
{{- $slowest = maxf 60 $slowest -}}
{{- $key := printf "%v %v" $expected $slowest -}}
{{- $refit := 21600.0 -}}
{{- if eq $kind "arena" -}}
{{- $refit = get $refits $key | default $refit -}}
{{- else -}}
{{- $refit = maxf $refit (mulf 3 ($ssme.every_seconds | default (mulf ($ssme.every_windows | default $defaults.every_windows) $expected))) -}}
{{- $_ := set $refits $key $refit -}}
{{- end -}}
{{- $names = append $names $name -}}
{{- $_ := set $times $name (dict
  "one_window" (include "blindsight.duration" $expected)
  "two_windows" (include "blindsight.duration" (mulf 2 $expected))
  "two_periods" (include "blindsight.duration" (mulf 2 $slowest))
  "refits" (include "blindsight.duration" $refit)
  "refit_seconds" (printf "%.6g" $refit)
  "task" "") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $paces := list -}}
{{- if le (len (values $times | uniq)) 1 -}}
{{- $paces = values $times | uniq -}}
{{- else -}}
{{- range $names }}{{ $paces = append $paces (set (get $times .) "task" .) }}{{ end -}}
{{- end -}}
{{- toRawJson $paces -}}
{{- end -}}

{{- /* The groups of rules for the tasks in config. */}}
{{- define "blindsight.rules" -}}
{{- $file := .Files.Get "files/alerts.yaml" | fromYaml -}}
{{- $given := .Values.prometheusRule -}}
{{- $url := .Values.config.export.external_url | default "" | trimSuffix "/" -}}
{{- if not .Values.config.tasks -}}
{{- fail "prometheusRule: config.tasks is empty, and the chart cannot read existingConfigMap; install the rules that `blindsight rules config.yaml --format operator` prints" -}}
{{- end -}}
{{- if contains "${" $url -}}
{{- fail "prometheusRule: config.export.external_url has a variable of the environment, which the chart cannot read; write the address" -}}
{{- end -}}
{{- $served := and $url (not $given.runbooks) -}}
{{- $paces := include "blindsight.paces" (dict "tasks" .Values.config.tasks "defaults" $file.defaults) | fromJsonArray -}}
groups:
{{- range $file.groups }}
  - name: {{ .name }}
    rules:
      {{- range $one := .rules }}
      {{- range $pace := $one.each_pace | ternary $paces (list dict) }}
      {{- $matcher := $pace.task | empty | ternary "" (printf ",task=%s" (toRawJson $pace.task)) }}
      {{- $text := toRawJson $one.rule
        | replace "<selector>" (include "blindsight.escaped" $given.selector)
        | replace "<task>" (include "blindsight.escaped" $matcher)
        | replace "<runbooks>" (include "blindsight.escaped" ($given.runbooks | default "deploy/runbooks" | trimSuffix "/"))
        | replace "}}?var-task" (contains "?" $given.dashboard | ternary "}}&var-task" "}}?var-task")
        | replace "<dashboard>" (include "blindsight.escaped" $given.dashboard)
        | replace "<external_url>" (include "blindsight.escaped" $url) }}
      {{- range $name := list "one_window" "two_windows" "two_periods" "refits" "refit_seconds" }}
      {{- $text = $text | replace (printf "<%s>" $name) (get $pace $name) }}
      {{- end }}
      {{- $rule := fromJson $text }}
      {{- if $pace.task }}{{ $_ := set $rule.labels "task" $pace.task }}{{ end }}
      {{- if not $url }}{{ $_ := unset $rule.annotations "page_url" }}{{ end }}
      {{- if and $served (eq $rule.alert "BlindsightAgentDown") }}
      {{- $_ := unset $rule.annotations "runbook_url" }}
      {{- else if $served }}
      {{- $_ := set $rule.annotations "runbook_url" (printf "%s/runbooks/%s%s" $url $rule.alert $file.runbook_query) }}
      {{- end }}
      {{- range $name, $link := dict "Page" "page_url" "Runbook" "runbook_url" }}
      {{- with get $rule.annotations $link }}
      {{- if contains "://" . }}{{ $_ := set $rule.annotations "description" (printf "%s\n%s: %s" $rule.annotations.description $name .) }}{{ end }}
      {{- end }}
      {{- end }}
      {{- if not $given.dashboard }}{{ $_ := unset $rule.annotations "dashboard_url" }}{{ end }}
      - {{- toYaml $rule | nindent 8 }}
      {{- end }}
      {{- end }}
{{- end }}
{{- end -}}
