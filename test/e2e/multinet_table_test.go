package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// ruleTests are the statements of the multi-network specification
// (spec/multinet.md), line by line, and the tests that hold each. A test without
// a folder is here.
var ruleTests = [][2]string{
	{"conf: every key is read, and a bad value's message names the key", "internal/network/cniconf:TestParseReadsTheKeysOfAMetaPlugin internal/network/cniconf:TestParseRefuses"},
	{"conf: capabilities, runtimeConfig, prevResult", "internal/network/cniconf:TestParseReadsAMultusConfiguration internal/network/cniconf:TestPluginConf"},
	{"conf: kubeconfig", "TestClusterOfTheConf"},
	{"conf: delegates, or clusterNetwork and defaultNetworks, in four forms", "TestClusterNetworkForms TestClusterNetworkIsOurs internal/network/resolve:TestClusterNetworkInItsFourForms internal/network/resolve:TestDefaultNetworks"},
	{"conf: confDir, cniDir, binDir", "TestNADWithoutConfig TestRule4_MultusRecordsAreAdopted TestBinDirOfTheConf"},
	{"conf: systemNamespaces", "TestClusterNetworkForms"},
	{"conf: namespaceIsolation, globalNamespaces", "TestNamespaceIsolation internal/network/resolve:TestIsolation"},
	{"conf: readinessindicatorfile", "TestReadinessIndicator internal/agent/engine:TestReadinessInVain"},
	{"conf: retryDeleteOnError", "TestComplaint_DelErrorsAreNotSwallowed"},
	{"conf: auxiliaryCNIChainName", "TestUpstream_SubdirectoryChainPassthru TestKubelet_UpstreamManifests internal/network/resolve:TestAuxiliaryChain"},
	{"conf: the agent's file", "TestClusterOfTheConfigFile cmd/fairlead/nodeagent:TestConfigFile internal/network/cniconf:TestParseDaemonReadsMultusFiles internal/network/cniconf:TestParseDaemonNamesTheKey internal/network/cniconf:TestDaemonOverridesTheConfiguration"},
	{"conf: connectionLimit", "internal/agent/server:TestLimit"},
	{"conf: perNodeCertificate", "TestClusterCertificate internal/source/cluster:TestPerNodeCertificate"},
	{"conf: the generated one: multusConfigFile, multusMasterCNI, forceCNIVersion, overrideNetworkName", "internal/install/conf:TestMasterIsAwaitedAndFollowed internal/install/conf:TestNamedMaster internal/install/conf:TestNameAndVersion internal/install/conf:TestUsersOwnFile"},

	{"annotations: networks, a list with commas or JSON", "TestRule1_NetworksCSV TestRule1_NetworksJSON internal/network/resolve:TestFurtherNetworksInBothForms"},
	{"annotations: default-network", "TestDefaultNetworkAnnotation internal/network/resolve:TestDefaultNetworkAnnotation"},
	{"annotations: network-status, exactly what is there", "internal/network/cniconf:TestRule7_StatusIsExact internal/network/cniconf:TestStatusHasAnEntryPerNetwork internal/source/cluster:TestStatusFollowsTheJournal TestKubelet_SeedPod"},
	{"annotations: resourceName", "TestRule8_KubeletsDevices"},
	{"annotations: a NAD without config, or whose config has no name", "TestNADWithoutConfig internal/network/resolve:TestConfigFiles"},
	{"annotations: no plugins, junk, null: an error, never a panic", "TestRule1_NothingRunsWhenOneRequestIsBad TestBadInput"},

	{"1 nothing runs before everything is planned", "TestRule1_NothingRunsWhenOneRequestIsBad TestRule1_SameNetworkTwice internal/network/resolve:TestRefused internal/network/resolve:TestInterfaceNames"},
	{"2 runtimeConfig, cni-args and CNI_ARGS reach whom they are for", "TestRule2_EverybodyGetsHisOwn internal/network/resolve:TestElementReachesItsOwnNetworkOnly internal/network/resolve:TestLegacyArgs"},
	{"3 rollback in reverse, the delegate's code", "TestRule3_RollbackReverseOrder TestRule3_EveryStepMayFail"},
	{"4 DEL by the record alone", "TestRule4_DelNeedsOnlyTheRecord TestRule4_DelReverses TestKubeAway"},
	{"4 DEL of what nobody recorded", "TestRule4_NeverSeen"},
	{"4 records that Multus left", "TestRule4_MultusRecordsAreAdopted TestRule4_MultusHadUsAsDelegate"},
	{"5 ADD again", "TestRule5_DuplicateAdd TestComplaint_InterfaceAlreadyExists TestCrashSweep TestRandomKills"},
	{"5 absent pods, static pods, another UID", "TestRule5_UIDMismatch internal/source/cluster:TestRule5_StaticPods internal/source/cluster:TestAddWaitsForALatePod"},
	{"6 CHECK proves what is there", "TestCheckFindsTampering TestCheckFollowsTheChain TestCheckComparesWithTheRuntimesResult"},
	{"6 STATUS asks the default networks", "TestRule6_StatusAsksTheDefaultNetwork"},
	{"6 GC: each network its share", "TestRule6_GCGivesEachNetworkItsShare TestLibCNIGC"},
	{"7 default-route", "TestRule7_DefaultRoute TestRule7_EmptyDefaultRoute TestRule7_UnreachableGateway TestUpstream_DefaultRoute"},
	{"8 kubelet's devices, in order, none twice", "TestRule8_KubeletsDevices internal/network/resolve:TestDevicesAreHandedOutInOrder internal/network/resolve:TestHotPluggedNetworksGetFreeDevices"},
	{"8 one question, only where it is needed; the checkpoint", "internal/network/resolve:TestKubeletIsNotAskedForNetworksWithoutResource internal/source/device:TestCheckpointServesWhereKubeletDoesNot TestRule8_DevicesWithoutKubelet"},
	{"8 DRA", "TestRule8_DRADevices internal/source/cluster:TestAttributesOfDRADevices"},
	{"8 device information files", "TestRule8_KubeletsDevices internal/network/resolve:TestDeviceInformationFilesAreNamedForTheAttachment internal/network/cniconf:TestStatusHasTheNetworksDevice"},
	{"9 each delegate in its own version", "TestRule9_EveryDelegateVersion TestRule9_UpstreamDelegates internal/network/cniconf:TestResultInEveryVersion"},
	{"10 events", "internal/source/cluster:TestRule10_Events TestKube"},
	{"11 no read and one write of the API server per ADD", "internal/source/cluster:TestRule11_AnAddReadsNothingAndWritesOnce TestKube"},
	{"12 hot plug", "TestRule12_HotPlug TestHotPlugCrashSweep TestHotPlugFailures TestKube"},

	{"complaint: fixed IP per StatefulSet replica", "TestComplaint_FixedAddressPerReplicaStays internal/network/resolve:TestComplaint_FixedAddressPerReplica TestKube"},
	{"complaint: delegates eat the daemon's memory", "TestComplaint_DelegateEatsTheMemory"},
	{"complaint: pods without their networks after a reboot, or by a fallback", "TestComplaint_NoPodWithoutItsNetworks TestKubelet_Reboot internal/install/conf:TestTheFileIsKeptAndStays"},
	{"complaint: DEL errors swallowed, cache dropped, DEL other than ADD", "TestComplaint_DelErrorsAreNotSwallowed"},
	{"complaint: torn cache", "TestComplaint_TornCacheOfMultus internal/network/cniconf:TestComplaint_TornCache"},
	{"complaint: token expiry", "internal/source/cluster:TestComplaint_TokensExpire"},
	{"complaint: text file busy", "TestComplaint_TextFileBusy internal/lib/hostfile:TestPlugins"},
	{"complaint: empty or self-nesting configuration", "TestComplaint_SelfNestingConfiguration internal/install/conf:TestNeverNested internal/install/conf:TestNothingBeforeTheAgentIsReady"},
	{"complaint: default network before CNI 0.4.0", "TestComplaint_OldDefaultNetwork"},
	{"complaint: default-route that does nothing", "TestRule7_DefaultRoute TestRule7_EmptyDefaultRoute"},
	{"complaint: interface already exists", "TestComplaint_InterfaceAlreadyExists"},
	{"complaint: hot-plugged networks without DEL", "TestComplaint_HotPluggedHaveTheirDEL"},
}

// TestRuleTable: all tests that the table names are there, and it names all
// that call themselves a rule's or a complaint's.
func TestRuleTable(t *testing.T) {
	root, err := testbed.Repository()
	require.NoError(t, err)
	named := map[string]bool{}
	for _, row := range ruleTests {
		for _, test := range strings.Fields(row[1]) {
			folder, name, ok := strings.Cut(test, ":")
			if !ok {
				folder, name = "test/e2e", test
			}
			named[name] = true
			require.Contains(t, testsOf(t, filepath.Join(root, folder)), name, "%s: %s", row[0], folder)
		}
	}
	for _, folder := range []string{"test/e2e", "internal/source/cluster", "internal/network/cniconf", "internal/network/resolve", "internal/agent/engine", "internal/source/device"} {
		for _, name := range testsOf(t, filepath.Join(root, folder)) {
			if strings.HasPrefix(name, "TestRule") && name != "TestRuleTable" || strings.HasPrefix(name, "TestComplaint") {
				require.True(t, named[name], "%s of %s is not in the table", name, folder)
			}
		}
	}
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// testsOf are the names of a folder's tests.
func testsOf(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}
