package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/nodeagent"
	"github.com/fairlead/fairlead/cmd/usage"
	"github.com/fairlead/fairlead/internal/agent"
	"github.com/fairlead/fairlead/internal/install/manifest"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/source/cluster/apply"
)

// Values of --dry-run.
const (
	dryNone   = "none"
	dryClient = "client" // print, and speak to nobody
	dryServer = "server" // the server checks and keeps nothing
)

// installOptions are the flags of install and uninstall.
type installOptions struct {
	kubeconfig string
	context    string
	namespace  string
	files      []string
	sets       []string
	crds       bool
	dryRun     string
	force      bool
}

// chosen adds the flags that say what is installed, and where.
func (o *installOptions) chosen(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "the cluster and your credentials (default: as kubectl does)")
	f.StringVar(&o.context, "context", "", "context of the kubeconfig")
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the agent, short for --set namespace=NAME")
	f.StringArrayVarP(&o.files, "values", "f", nil, "file of the chart's values (repeatable)")
	f.StringArrayVar(&o.sets, "set", nil, "one of the chart's values, KEY.KEY=VALUE in YAML (repeatable)")
}

func installCommand() *cobra.Command {
	o := installOptions{crds: true}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install Fairlead in a Kubernetes cluster",
		Long: `Install Fairlead in a Kubernetes cluster: the objects of the Helm chart, with
its values, by server-side apply and with your rights. Run it again to change or
upgrade. --dry-run prints the objects instead. For one machine without its agent
in a pod: fairlead install node.`,
		Args: usage.Args(cobra.NoArgs),
	}
	o.chosen(cmd)
	cmd.Flags().BoolVar(&o.crds, "crds", true, "with the CustomResourceDefinitions; those of another installation are left alone")
	cmd.Flags().StringVar(&o.dryRun, "dry-run", dryNone, "none, client (print the objects) or server (it checks them and keeps nothing)")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = dryClient
	cmd.Flags().BoolVar(&o.force, "force-conflicts", false, "take over fields that another tool, such as Helm, has set")
	f := outputFlag(cmd, asYAML, asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.install(cmd, f) }
	cmd.AddCommand(stockTools().InstallNode())
	return cmd
}

func uninstallCommand() *cobra.Command {
	o := installOptions{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove from a Kubernetes cluster what install made",
		Long: `Remove from a Kubernetes cluster what install made. Networks, subnets and their
definitions stay unless --crds takes them too; pods keep the networks they have.
Secret fairlead-ca, with the CAs of OVN's parts, and ConfigMap fairlead-central, of
its databases, stay. On the nodes plugin, configuration, journal and OVN's databases
stay.`,
		Args: usage.Args(cobra.NoArgs),
	}
	o.chosen(cmd)
	cmd.Flags().BoolVar(&o.crds, "crds", false, "also the CustomResourceDefinitions, and with them every NetworkAttachmentDefinition, Subnet, Vlan and ProviderNetwork")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.uninstall(cmd) }
	cmd.AddCommand(stockTools().UninstallNode())
	return cmd
}

// objects are the chart's with the flags' values, unless check refuses; CRDs first.
func (o *installOptions) objects(check func(manifest.Values) error) (manifest.Values, []manifest.Object, error) {
	v, err := o.values()
	if err := errors.Join(err, check(v)); err != nil {
		return nil, nil, err
	}
	all, err := manifest.Render(v)
	if err != nil || !o.crds {
		return v, all, err
	}
	crds, err := manifest.CRDs(v)
	return v, append(crds, all...), err
}

// values are the chart's with what the flags say.
func (o *installOptions) values() (manifest.Values, error) {
	v, err := manifest.Defaults()
	if err != nil {
		return nil, err
	}
	for _, name := range o.files {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if err := v.Merge(b); err != nil {
			return nil, hint.Usagef("%s: %w", name, err)
		}
	}
	sets := slices.Clone(o.sets)
	if o.namespace != "" {
		sets = append(sets, "namespace="+o.namespace)
	}
	for _, s := range sets {
		if err := v.Set(s); err != nil {
			return nil, hint.Usagef("--set: %w", err)
		}
	}
	return v, nil
}

// checkValues refuses values that the API server takes and with which no agent
// would start, or no policy do what it says.
func checkValues(v manifest.Values) error {
	flags := nodeagent.Command(agent.Build{}).Flags()
	flags.String("socket", "", "") // the root command's
	given, _ := v["flags"].(map[string]any)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch {
		case flags.Lookup(name) == nil:
			errs = append(errs, hint.Usagef("flags.%s: the agent has no flag --%s (`fairlead agent --help` lists them)", name, name))
		case flags.Set(name, fmt.Sprint(given[name])) != nil:
			errs = append(errs, hint.Usagef("flags.%s: the agent's flag takes no %v", name, given[name]))
		}
	}
	for _, err := range []error{v.CheckActions(), v.CheckOVN(), v.CheckNetworks(manifest.Cluster{})} {
		if err != nil {
			errs = append(errs, hint.Usagef("%w", err))
		}
	}
	return errors.Join(errs...)
}

func (o *installOptions) install(cmd *cobra.Command, f *format) error {
	if !slices.Contains([]string{dryNone, dryClient, dryServer}, o.dryRun) {
		return hint.Usagef("--dry-run must be none, client or server")
	}
	if cmd.Flags().Changed("output") && o.dryRun != dryClient {
		return hint.Usagef("-o says how --dry-run prints the objects")
	}
	values, objects, err := o.objects(checkValues)
	if err != nil {
		return err
	}
	if o.dryRun == dryClient {
		return printObjects(cmd.OutOrStdout(), objects, f.value)
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	ctx, cancel := within(cmd)
	defer cancel()
	there, err := c.Cluster(ctx)
	if err == nil {
		err = values.CheckNetworks(there)
	}
	if err != nil {
		return hint.On(err, "nothing was applied: give networks that nobody else has, by --set ovn.podCIDR=, ovn.joinCIDR= or ovn.serviceCIDR=")
	}
	return c.ApplyAll(ctx, cmd.OutOrStdout(), objects)
}

func (o *installOptions) uninstall(cmd *cobra.Command) error {
	// Whatever the values were with which it was installed.
	o.sets = append(o.sets, "openvswitch.enabled=true", "ovn.enabled=true", "ovn.chassis.enabled=true", "ovn.central.members={any: any}")
	_, objects, err := o.objects(func(manifest.Values) error { return nil })
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, manifest.Object.Keeps)
	c, err := o.client()
	if err != nil {
		return err
	}
	ctx, cancel := within(cmd)
	defer cancel()
	return c.DeleteAll(ctx, cmd.OutOrStdout(), objects)
}

// client speaks to the cluster that the flags name.
func (o *installOptions) client() (*apply.Client, error) {
	c, err := apply.New(apply.Options{
		Kubeconfig: o.kubeconfig, Context: o.context, DryRun: o.dryRun == dryServer, Force: o.force,
	})
	if errors.Is(err, apply.ErrNoCluster) {
		return nil, hint.On(err, "give --kubeconfig, set KUBECONFIG, or print the objects with `fairlead install --dry-run`")
	}
	return c, err
}

func printObjects(w io.Writer, objects []manifest.Object, as string) error {
	if as == asJSON {
		return writeJSON(w, map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	b, err := manifest.YAML(objects)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}
