package program_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/ops/doctor"
	"github.com/fairlead/fairlead/internal/ops/program"
)

// TestRun: doctor and support-bundle start programs by root's PATH, with
// nothing of the caller's environment.
func TestRun(t *testing.T) {
	t.Setenv("PLANTED", "secret")
	out, err := program.Run(t.Context(), doctor.Command{Argv: []string{"env"}, Env: []string{"CNI_COMMAND=VERSION"}})
	require.NoError(t, err)
	require.Equal(t, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nLC_ALL=C\nCNI_COMMAND=VERSION\n", string(out))
	out, err = program.Run(t.Context(), doctor.Command{Argv: []string{"cat"}, Stdin: "in"})
	require.NoError(t, err)
	require.Equal(t, "in", string(out))
	_, err = program.Run(t.Context(), doctor.Command{Argv: []string{"no-such-program"}})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = program.Run(t.Context(), doctor.Command{Argv: []string{"ls", "/no/such/file"}})
	require.ErrorContains(t, err, "No such file or directory")
	out, err = program.Run(t.Context(), doctor.Command{Argv: []string{"sh", "-c", "(sleep 2; echo last) & echo first"}})
	require.NoError(t, err, "the end of an output may come late")
	require.Equal(t, "first\nlast\n", string(out))
}

// TestHand: the program has the caller's streams, and its exit code is told.
func TestHand(t *testing.T) {
	var out, err strings.Builder
	code, fault := program.Hand(t.Context(), program.Streams{In: strings.NewReader("in"), Out: &out, Err: &err}, "sh", "-c", "cat; echo wrong >&2; exit 7")
	require.NoError(t, fault)
	require.Equal(t, []any{7, "in", "wrong\n"}, []any{code, out.String(), err.String()})
	_, fault = program.Hand(t.Context(), program.Streams{}, "no-such-program")
	require.ErrorIs(t, fault, fs.ErrNotExist)
}
