package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// shapes are the forms of the stored values, by schema version.
var shapes = map[uint64]string{
	1: "bf9d442e5cf7f3e7",
	2: "1d387713577edcb6",
	3: "32641ab2376eee8e",
	4: "062a52e82c8ee030",
	5: "9e094d2af9b8e25a",
}

// TestShapeOfTheSchema fails when a stored type changes. Rows are read strictly,
// so an agent of the old form would take the new one's journal for damaged and
// move it away. When agents of the present version are in use: raise
// current.version, give it a step from the one before and add the new shape
// above. Before that: put the new shape in the old one's place.
func TestShapeOfTheSchema(t *testing.T) {
	var b strings.Builder
	for _, v := range []any{core.Record{}, core.Released{}, core.Attempt{}, core.Uplink{}} {
		shape(&b, reflect.TypeOf(v), map[reflect.Type]bool{})
	}
	sum := sha256.Sum256([]byte(b.String()))
	require.Equal(t, shapes[current.version], hex.EncodeToString(sum[:8]), "the stored types are now:\n%s", b.String())
}

// shape writes a type as far as JSON sees it.
func shape(b *strings.Builder, t reflect.Type, seen map[reflect.Type]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		fmt.Fprintf(b, "%s: %s of ", t, t.Kind())
		shape(b, t.Elem(), seen)
	case reflect.Struct:
		fmt.Fprintf(b, "%s\n", t)
		if seen[t] {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fmt.Fprintf(b, "%s.%s %q ", t, f.Name, f.Tag.Get("json"))
				shape(b, f.Type, seen)
			}
		}
	default:
		fmt.Fprintf(b, "%s\n", t)
	}
}
