package question

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/ops/client/view"
	"github.com/fairlead/fairlead/internal/ops/doctor"
	"github.com/fairlead/fairlead/internal/ovs/rows"
)

const restoreHelp = `

The member begins both clusters of databases with what FILE has, or empty ones with
--empty, whatever there was; that is kept beside. The other members put theirs aside
and join by themselves. Nodes go on with the flows that they have until the southbound
database has what they need again. What FILE does not know, controllers write.`

// restoreLimit is how long a member that runs may take to begin databases.
const restoreLimit = time.Minute

// backup writes both databases.
func backup(ctx context.Context, a Asked) (view.Answer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, d := range []database{north0, south0} {
		place := rows.Place{Endpoint: member(a, d.short)}
		if flag := a.Flags[d.short]; flag != "" || place.Endpoint == "" {
			var err error
			if place, err = d.find(ctx, a); err != nil {
				return view.Answer{}, hint.On(fmt.Errorf("where %s is, nobody tells: %w", d.name, err), "name it with --"+d.short)
			}
		}
		if unshown(place) {
			return view.Answer{}, hint.On(fmt.Errorf("%s is asked by TLS, and no files are named", d.name),
				"`kubectl -n "+a.Flags["install-namespace"]+" exec ds/fairlead-central -- fairlead ovn backup /dev/stdout` needs none")
		}
		argv := append([]string{"ovsdb-client"}, tlsArgs(place.TLS)...)
		if len(place.Members()) == 1 {
			argv = append(argv, "--no-leader-only")
		}
		text, err := a.Run(ctx, doctor.Command{Argv: append(argv, "--timeout=60", "backup", place.Endpoint, d.name)})
		if err != nil {
			return view.Answer{}, fmt.Errorf("backup of %s: %w", d.name, err)
		}
		if err := w.WriteHeader(&tar.Header{Name: d.short + ".db", Mode: 0o600, Size: int64(len(text)), ModTime: time.Now()}); err != nil {
			return view.Answer{}, err
		}
		if _, err := w.Write(text); err != nil {
			return view.Answer{}, err
		}
	}
	if err := w.Close(); err != nil {
		return view.Answer{}, err
	}
	return view.Answer{}, deliver(a.Args[0], out.Bytes())
}

// deliver writes a file, durably and whole, or to what is none.
func deliver(path string, content []byte) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().IsRegular() {
		return hostfile.Write(path, content, 0o600)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// restore has the member of central that runs here begin the databases anew.
func restore(ctx context.Context, a Asked) (view.Answer, error) {
	if a.On("empty") == (len(a.Args) == 1) {
		return view.Answer{}, hint.Usagef("name a backup, or say --empty")
	}
	home := cmp.Or(a.Flags["central-dir"], defaultCentral)
	if _, err := os.Stat(home); err != nil {
		return view.Answer{}, hint.On(fmt.Errorf("no member of central runs here: %w", err), "run it on one, as `kubectl -n kube-system exec ds/fairlead-central -- fairlead ovn restore`; --central-dir names its folder")
	}
	draft, err := os.MkdirTemp(home, fairlead.RestoreDir+"-")
	if err != nil {
		return view.Answer{}, err
	}
	defer func() { _ = os.RemoveAll(draft) }() // it has another name where all went well
	if err := fill(ctx, a, draft); err != nil {
		return view.Answer{}, err
	}
	due := filepath.Join(home, fairlead.RestoreDir)
	if err := os.Rename(draft, due); err != nil {
		return view.Answer{}, hint.On(err, "what lies there already begins when the member runs")
	}
	for begun := time.Now(); ; {
		if _, err := os.Stat(due); errors.Is(err, fs.ErrNotExist) {
			a.Note("the databases have begun anew here; the other members join within a minute (fairlead doctor --cluster)")
			return view.Answer{}, nil
		}
		if time.Since(begun) > restoreLimit {
			return view.Answer{}, hint.On(fmt.Errorf("the member has not taken %s yet", due), "it does when it runs and reaches the API server; its log says what it waits for. Remove the folder to go on with the databases that are there")
		}
		select {
		case <-ctx.Done():
			return view.Answer{}, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// fill puts a backup's databases into a folder, or none of what there was.
func fill(ctx context.Context, a Asked, into string) error {
	if len(a.Args) == 1 {
		if err := unpack(ctx, a, into); err != nil {
			return fmt.Errorf("backup %s: %w", a.Args[0], err)
		}
		return nil
	}
	for _, d := range []database{north0, south0} {
		if err := hostfile.Write(filepath.Join(into, d.short+".db"), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// unpack puts a backup's databases into a folder, and proves that they are OVN's.
func unpack(ctx context.Context, a Asked, into string) error {
	f, err := os.Open(a.Args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	want := map[string]string{}
	for _, d := range []database{north0, south0} {
		want[d.short+".db"] = d.name
	}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := want[h.Name]
		if name == "" {
			return fmt.Errorf("%q is no file of a backup, or there twice", h.Name)
		}
		delete(want, h.Name)
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		path := filepath.Join(into, h.Name)
		if err := hostfile.Write(path, content, 0o600); err != nil {
			return err
		}
		if err := whole(ctx, a, path, name); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	if len(want) > 0 {
		return errors.New("it lacks a database: it has to have nb.db and sb.db")
	}
	return nil
}

// whole proves that a file has a database of this name, and can be read to its end.
func whole(ctx context.Context, a Asked, path, name string) error {
	is, err := a.Run(ctx, doctor.Command{Argv: []string{"ovsdb-tool", "db-name", path}})
	if err != nil {
		return err
	}
	if now := strings.TrimSpace(string(is)); now != name {
		return fmt.Errorf("it is database %s", now)
	}
	_, err = a.Run(ctx, doctor.Command{Argv: []string{"ovsdb-tool", "query", path, `["` + name + `"]`}})
	return err
}
