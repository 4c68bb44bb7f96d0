package annotation

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryFieldIsRead: a field of api/v1 without a column would be taken and not
// carried out; two columns of one field would be read twice.
func TestEveryFieldIsRead(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../../../api/v1/annotations.go", nil, 0)
	require.NoError(t, err)
	var fields []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Field") {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		fields = append(fields, value)
		return true
	})
	var read []string
	for _, c := range columns {
		read = append(read, c.field)
	}
	require.Greater(t, len(fields), 20)
	require.ElementsMatch(t, fields, read)
}
