package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	template "github.com/DataDog/datadog-agent/pkg/template/text"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/deploy"
)

// renderer executes the chart's templates with the few of Helm's functions
// that they use. A function that is missing here fails when the templates are
// parsed, so no template can outgrow it unnoticed.
type renderer struct {
	all  *template.Template
	data map[string]any
}

// chartFile is the part of Chart.yaml that templates may use.
type chartFile struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	AppVersion string `json:"appVersion"`
}

func newRenderer(v Values) (*renderer, error) {
	b, err := fs.ReadFile(deploy.Chart, path.Join(deploy.ChartDir, "Chart.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read chart: %w", err)
	}
	var chart chartFile
	if err := yaml.Unmarshal(b, &chart); err != nil {
		return nil, fmt.Errorf("read Chart.yaml: %w", err)
	}
	r := &renderer{
		all:  template.New("chart").Option("missingkey=zero"),
		data: map[string]any{"Values": map[string]any(v), "Chart": chart},
	}
	r.all.Funcs(template.FuncMap{
		"include": r.include, "toYaml": toYAML, "toJson": toJSON, "fromYaml": fromYAML, "nindent": nindent, "quote": quote,
		"default": or, "sha256sum": sum, "dict": dict, "contains": contains,
	})
	err = each(deploy.Chart, deploy.ChartDir, "templates", func(name string, b []byte) error {
		_, err := r.all.New(name).Parse(string(b))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("parse chart: %w", err)
	}
	return r, nil
}

func (r *renderer) render(name string) ([]byte, error) {
	s, err := r.include(name, r.data)
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	return []byte(s), nil
}

// include executes a named template.
func (r *renderer) include(name string, data any) (string, error) {
	var out bytes.Buffer
	err := r.all.ExecuteTemplate(&out, name, data)
	return out.String(), err
}

func toYAML(v any) (string, error) {
	b, err := yaml.Marshal(v)
	return strings.TrimSuffix(string(b), "\n"), err
}

func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

func fromYAML(s string) (map[string]any, error) {
	out := map[string]any{}
	err := yaml.Unmarshal([]byte(s), &out)
	return out, err
}

func nindent(spaces int, s string) string {
	pad := "\n" + strings.Repeat(" ", spaces)
	return pad + strings.ReplaceAll(s, "\n", pad)
}

// contains is strings.Contains with the arguments as Helm has them.
func contains(part, s string) bool { return strings.Contains(s, part) }

func quote(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) }

// or is Helm's default: the value unless it is empty.
func or(otherwise, v any) any {
	if truth, ok := template.IsTrue(v); ok && truth {
		return v
	}
	return otherwise
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

var errPairs = errors.New("dict needs pairs of a string and a value")

func dict(pairs ...any) (map[string]any, error) {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		key, ok := pairs[i].(string)
		if !ok {
			return nil, errPairs
		}
		out[key] = pairs[i+1]
	}
	if len(pairs)%2 != 0 {
		return nil, errPairs
	}
	return out, nil
}
