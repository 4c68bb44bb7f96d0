package central_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
)

// installed stands for the version of the schema that this machine's OVN has.
const installed = ""

// schemaFile is the installed schema of a database.
func schemaFile(db string) string { return "/usr/share/ovn/ovn-" + db + ".ovsschema" }

// schema is a file with the installed schema under another version; without a table
// that came late, where the version is an old one.
func (m *member) schema(db, version string) string {
	t := m.s.t
	t.Helper()
	text, err := os.ReadFile(schemaFile(db))
	require.NoError(t, err)
	var schema map[string]any
	require.NoError(t, json.Unmarshal(text, &schema))
	schema["version"] = version
	if version == old {
		tables, _ := schema["tables"].(map[string]any)
		require.Contains(t, tables, late[db])
		delete(tables, late[db])
	}
	text, err = json.Marshal(schema)
	require.NoError(t, err)
	path := filepath.Join(m.Dir, db+"-"+version+".ovsschema")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

const old = "1.2.3"

// late are tables to which no other refers and that an old schema lacks.
var late = map[string]string{"nb": "Chassis_Template_Var", "sb": "Chassis_Template_Var"}

// old has the member begin the clusters with databases of an old schema.
func (m *member) old() {
	m.s.t.Helper()
	home := filepath.Join(m.Dir, dir)
	require.NoError(m.s.t, os.MkdirAll(home, 0o700))
	for db, port := range map[string]int{"nb": fairlead.PortNBRaft, "sb": fairlead.PortSBRaft} {
		m.Run("ovsdb-tool", "create-cluster", filepath.Join(home, db+".db.first"), m.schema(db, old), fmt.Sprintf("ssl:%s:%d", m.addr, port))
	}
}

// older is a backup with the same rows in databases of an old schema.
func (m *member) older(backup string) string {
	m.s.t.Helper()
	home := m.Dir
	m.Run("tar", "-xf", backup, "-C", home)
	for _, db := range []string{"nb", "sb"} {
		m.Run("ovsdb-tool", "convert", filepath.Join(home, db+".db"), m.schema(db, old))
	}
	out := filepath.Join(home, "older.tar")
	m.Run("tar", "-cf", out, "-C", home, "nb.db", "sb.db")
	return out
}

// schemas proves of which versions the member's databases are.
func (m *member) schemas(nb, sb string) {
	t := m.s.t
	t.Helper()
	for db, want := range map[string]string{"nb": nb, "sb": sb} {
		if want == installed {
			want = strings.TrimSpace(m.Run("ovsdb-tool", "schema-version", schemaFile(db)))
		}
		name := strings.TrimSpace(m.Run("ovsdb-tool", "schema-name", schemaFile(db)))
		at := "unix:" + filepath.Join(m.Dir, run, db+".sock")
		require.Equal(t, want, strings.TrimSpace(m.Run("ovsdb-client", "--no-leader-only", "get-schema-version", at, name)))
		require.Contains(t, m.Run("ovsdb-client", "--no-leader-only", "list-tables", at, name), late[db])
	}
}
