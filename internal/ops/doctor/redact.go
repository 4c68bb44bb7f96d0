package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const redacted = "[redacted]"

// secretWords make a key's value a secret wherever the key stands.
const secretWords = `pass(?:word|wd|phrase)|secret|token|api[-_]?key|private[-_]?key|authorization|credential|(?:client-key|certificate(?:-authority)?|client-certificate)-data`

var (
	secretKey = regexp.MustCompile(`(?i)` + secretWords)

	// patterns find secrets by their looks. The second group, where there is
	// one, is what stays.
	patterns = []*regexp.Regexp{
		regexp.MustCompile(`(?s)-----BEGIN [^-]+-----.*?-----END [^-]+-----`),
		regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*`), // JSON web token (RFC 7519)
		regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+[\w.~+/=-]{6,}`),
		regexp.MustCompile(`[^/\s:@"]+:[^/\s@"]+@`), // user:password@ of a URL
	}

	// keyed is `key: value`, `key=value` and `"key":"value"`, also where the
	// quotes are escaped because the text stands in another text.
	keyed = regexp.MustCompile(`(?i)([\w.-]*(?:` + secretWords + `)[\w.-]*(?:\\*")?\s*[:=]\s*)(?:(\\*")[^"\\]*(?:\\[^"][^"\\]*)*\\*"|[^\s,;}\]"\\]+)`)

	// contentKeys are attributes of a log line that hold somebody's content.
	contentKeys = []string{"config", "conf", "stdin", "raw", "result", "prevResult", "annotations", "environment", "env", "kubeconfig"}
)

// minSecret is the shortest value that is taken out wherever it stands; a
// shorter one would hit innocent text.
const minSecret = 8

// redactor takes secrets out of text.
type redactor struct{ exact *strings.Replacer }

func newRedactor(secrets []string) redactor {
	// The longest first: one secret may begin another.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, s := range secrets {
		if len(s) >= minSecret {
			pairs = append(pairs, s, redacted)
		}
	}
	return redactor{strings.NewReplacer(pairs...)}
}

func (r redactor) clean(text []byte) []byte {
	out := []byte(r.exact.Replace(string(text)))
	for _, p := range patterns {
		out = p.ReplaceAllLiteral(out, []byte(redacted))
	}
	return keyed.ReplaceAll(out, []byte("${1}${2}"+redacted+"${2}"))
}

// cleanLog takes contents out of a log of JSON lines; other lines stay, for
// the redactor.
func cleanLog(log []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(log) {
		var attrs map[string]json.RawMessage
		if json.Unmarshal(line, &attrs) != nil {
			out.Write(line)
			continue
		}
		for key := range attrs {
			if slices.ContainsFunc(contentKeys, func(k string) bool { return strings.EqualFold(k, key) }) {
				attrs[key] = json.RawMessage(`"` + redacted + `"`)
			}
		}
		if clean, err := json.Marshal(attrs); err == nil {
			out.Write(append(clean, '\n'))
		}
	}
	return out.Bytes()
}

// secretsBelow are the values that files of the directories call secret, to be
// taken out of everything else: an error message may quote one.
func secretsBelow(dirs ...string) (found []string) {
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // not there: nothing to protect
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				continue
			}
			for _, doc := range bytes.Split(b, []byte("\n---")) {
				found = append(found, secretsIn(doc)...)
			}
		}
	}
	return found
}

// secretsIn reads a document of YAML or JSON.
func secretsIn(doc []byte) (found []string) {
	var v any
	if yaml.Unmarshal(doc, &v) == nil {
		walk("", v, &found)
	}
	return found
}

// walk collects the texts under secret keys; a text that holds JSON itself, as
// an annotation or a NAD's config does, is walked too.
func walk(key string, v any, found *[]string) {
	switch v := v.(type) {
	case map[string]any:
		for k, child := range v {
			if secretKey.MatchString(key) {
				k = key // all below a secret is secret
			}
			walk(k, child, found)
		}
	case []any:
		for _, child := range v {
			walk(key, child, found)
		}
	case string:
		var inner any
		switch {
		case secretKey.MatchString(key):
			*found = append(*found, v)
		case strings.ContainsAny(v, "{[") && json.Unmarshal([]byte(v), &inner) == nil:
			walk(key, inner, found)
		}
	}
}
