# Fairlead's workshop. `make help` lists the targets.
#
# Third-party tools (CNI plugins, cnitool, golangci-lint) are pinned in one
# place, tools/go.mod, and built into .cache/bin; Kubernetes and containerd, of
# which tests make clusters, in test/kube. Debian packages are listed in
# scripts/setup. Nothing outside the checkout is written but by `setup` (apt)
# and `install`.
SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS   += --no-print-directory

GO      ?= go
PREFIX  ?= /usr/local
DESTDIR ?=
# Where a runtime looks for CNI plugins, and under which types ours is found.
# Add `multus kube-ovn` to answer to confs written for those.
CNI_DIR     ?= /opt/cni/bin
CNI_TYPES   ?= fairlead
UNIT_DIR    ?= $(PREFIX)/lib/systemd/system
# The folder of objects in the unit's default flags.
OBJECTS_DIR ?= /etc/fairlead/objects
# FORCE=1 lets `make install` replace another project's plugin.
FORCE       ?=

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  = -s -w -X main.version=$(VERSION)
PROGRAMS = ./cmd/fairlead ./cmd/fairlead-cni ./cmd/fairlead-controller
GOBUILD  = $(GO) build $(TRIMPATH) -tags $(TAGS) -ldflags '$(LDFLAGS)'
# What calls methods by names that it is told has the linker keep all methods of all types: a fifth of
# the program, in memory too. Templates do (arch_test.go bans them), and with them gRPC's pages of traces.
TAGS     = grpcnotrace
# Not for what only tests run: what is compiled with it and without it is compiled twice.
TRIMPATH ?= -trimpath
# What the compiler knows of a working agent (profile-guided optimization: some
# 5 % less CPU). `make PGO=off build` is twice as fast where nothing is cached.
PGO     ?= cmd/fairlead/agent.pgo

CACHE := $(CURDIR)/.cache
TOOLS := $(CACHE)/bin
# Binaries with crash points, and the plugin directory of the test nodes.
FAILPOINT := $(CACHE)/failpoint
TESTCNI   := $(CACHE)/cni
# Kubernetes' programs and containerd, for tests and `make cluster`.
KUBE_VERSION := $(shell sed -n 's#^\tk8s.io/kubernetes \(v[0-9.]*\)$$#\1#p' test/kube/go.mod)
KUBE         := $(CACHE)/kube/$(KUBE_VERSION)
# Other projects' programs: the benchmark's, and Kube-OVN's plugin for make soak.
PEERS        := $(CACHE)/bench
# The commit from whose version make soak upgrades a cluster.
FORMER       ?= HEAD~60
FORMER_BIN   := $(CACHE)/former

# Few at a time: a node runs two OVS daemons, and the machines that this must suit have two cores. What
# they wait for leaves a third of these idle all the same. Lint vets already.
TEST_PACKAGES ?= $(filter-out $(shell $(GO) list $(RACE_CORE)),$(shell $(GO) list ./...))
TEST_FLAGS    ?= -count=1 -p 3 -parallel 4 -vet=off -tags $(TAGS)
E2E_FLAGS     ?= -count=1 -parallel 6 -vet=off -tags $(TAGS)
TEST_TIMEOUT  ?= 40m
# What repeats a case, and what is long: make soak runs it.
TEST_SKIP     ?= ^($(shell grep -o '^Test[^ ]*' test/soak.txt | paste -sd '|'))$$
SOAK_PACKAGES ?= ./...
SOAK_TIMEOUT  ?= 180m
# Time for each fuzz target of `make soak`.
FUZZTIME      ?= 2m

# Only `race` needs a C compiler; one setting for all others shares the build cache.
export CGO_ENABLED = 0
# Machines of `make cluster`.
NODES ?= 1
# Arguments of `make run`: KEEP=1 leaves it running, OVN=1 runs examples/ovn over OVN, OVSDB=... uses the machine's own Open vSwitch.
export KEEP OVSDB OVN

CNI_PLUGINS = $(shell sed -n 's#^\t\(github.com/containernetworking/plugins/plugins/.*\)$$#\1#p' tools/go.mod)

# A compiler that collects its garbage less often takes a sixth less time, and linters a fourth.
lint build testbin floor kube critest: export GOGC = 400

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: root setup-run build ## set up, then the main job: a node of its own with pods in containers (KEEP=1 leaves it, OVN=1 shows a policy and a Service, OVSDB=unix:... uses the machine's)
	@mkdir -p $(CACHE)/run
	@$(GO) build -trimpath -o $(CACHE)/run/load ./internal/testbed/docker/load
	@$(GO) build -trimpath -ldflags '-s -w' -o $(CACHE)/run/pause test/kube/pause/main.go
	@scripts/run

.PHONY: stop
stop: root ## end what `make run KEEP=1` left
	@scripts/stop

.PHONY: cluster
cluster: setup-cluster root $(KUBE)/kube $(KUBE)/containerd $(KUBE)/pause testbin ## a Kubernetes cluster with Fairlead, in the foreground; Ctrl-C removes it (NODES=2)
	@$(GO) build -ldflags '-s -w' -o $(CACHE)/cluster ./internal/testbed/kube/cluster
	@FAIRLEAD_BIN=$(FAILPOINT) exec $(CACHE)/cluster -nodes $(NODES)

.PHONY: test
test: PGO = off
test testbin: TRIMPATH =
test: setup-test root build testbin floor kube critest networkmanager ## set up, then all tests, in parts (root: they make network namespaces)
	@scripts/parts \
		bench '$(GO) -C bench test ./...' \
		chart '$(GO) -C test/chart test ./...' \
		vm '$(MAKE) vm' \
		race '$(MAKE) race RACE_PACKAGES="$(RACE_CORE)"' \
		units 'FAIRLEAD_BIN=$(FAILPOINT) $(GO) test $(TEST_FLAGS) -skip "$(TEST_SKIP)" -timeout $(TEST_TIMEOUT) $(filter-out %/test/e2e,$(TEST_PACKAGES))' \
		e2e 'FAIRLEAD_BIN=$(FAILPOINT) $(GO) test $(E2E_FLAGS) -skip "$(TEST_SKIP)" -timeout $(TEST_TIMEOUT) ./test/e2e'

# Neither the testbed nor internal/cri itself nor the controller's central, whose
# tests run the program as a process: there the detector would see the tests' own
# code alone.
RACE_PACKAGES ?= $(shell $(GO) list ./internal/... ./cmd/... | grep -v -e /internal/testbed -e '/internal/cri$$' -e '/internal/controller/central$$')
# What runs the same code over a second runtime, and what compares texts with
# those of other programs, one after the other.
RACE_SKIP ?= OverDocker|^(TestSameAsKubelet|TestSameVerdict|TestNothingIsGivenUnasked)$$
# Where the goroutines of all ADDs and DELs meet. These link no client of Kubernetes, which takes as
# long to compile for the detector as their tests run: make test runs them with it, and no others.
RACE_CORE := $(addprefix ./internal/,agent/deviceplugin agent/engine driver/defroute gateway/handover journal kernel/... lib/... network/... ovn ovs/...)
.PHONY: race
race: setup-race root testbin kube networkmanager ## all packages' own tests with the race detector (the one target that needs a C compiler)
	@FAIRLEAD_BIN=$(FAILPOINT) CGO_ENABLED=1 $(GO) test -race $(TEST_FLAGS) -skip '$(RACE_SKIP)' -timeout $(TEST_TIMEOUT) $(RACE_PACKAGES)

.PHONY: unraced
unraced: ## print the packages that `make test` runs without the race detector
	@echo $(TEST_PACKAGES)

# Before the other tests, not beside them: the VM computes what it runs.
.PHONY: vm
vm: setup-vm root testbin kube ## the tests that need a kernel with Open vSwitch, policing and ipvlan, in a VM (QEMU)
	@FAIRLEAD_BIN=$(FAILPOINT) $(GO) test -tags vm -count=1 -timeout $(TEST_TIMEOUT) ./test/vm

.PHONY: soak
soak: setup-soak root build testbin kube $(KUBE)/containerd17/containerd critest networkmanager suites former $(PEERS)/kube-ovn ## the tests with full counts, all with the race detector, then every fuzz target for FUZZTIME
	@FAIRLEAD_SOAK=1 FAIRLEAD_BIN=$(FAILPOINT) FAIRLEAD_FORMER=$(FORMER_BIN) $(GO) test $(TEST_FLAGS) -timeout $(SOAK_TIMEOUT) $(SOAK_PACKAGES)
	@FAIRLEAD_SOAK=1 $(MAKE) vm TEST_TIMEOUT=$(SOAK_TIMEOUT)
	@$(MAKE) race TEST_TIMEOUT=$(SOAK_TIMEOUT)
	@scripts/fuzz $(FUZZTIME) $(SOAK_PACKAGES)

.PHONY: former
former: ## the programs of a former version (FORMER=COMMIT), for TestFormerVersion; the checkout's history must reach it
	@rm -rf $(FORMER_BIN) && mkdir -p $(FORMER_BIN)/src
	@git archive $(FORMER) | tar x -C $(FORMER_BIN)/src
	@$(GO) -C $(FORMER_BIN)/src build -buildvcs=false -o $(FORMER_BIN)/ ./cmd/fairlead ./cmd/fairlead-controller
	@rm -rf $(FORMER_BIN)/src

# Built once for each version: some minutes on two cores. The module's own
# version is what a program says of itself, as in a release.
KUBE_PROGRAMS := kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubelet kubectl
KUBE_LDFLAGS   = -s -w $(foreach v,gitVersion=$(KUBE_VERSION) gitMajor=$(word 1,$(subst ., ,$(KUBE_VERSION:v%=%))) \
	gitMinor=$(word 2,$(subst ., ,$(KUBE_VERSION:v%=%))) gitTreeState=clean,-X k8s.io/component-base/version.$(v))
# Packages that are compiled, a line for every 200 of them, and what else is said.
COUNTED := 2>&1 | awk '/^[a-z][^ :]*$$/ { if (++n % 200 == 0) { print "  " n " packages"; fflush() }; next } { print }'
.PHONY: kube
kube: $(KUBE)/kube $(KUBE)/oracle $(KUBE)/containerd $(KUBE)/pause ## Kubernetes' programs and containerd for the tests (once, some minutes)

$(KUBE)/kube: test/kube/go.mod test/kube/go.sum test/kube/main.go
	@mkdir -p $(KUBE)
	@echo "building Kubernetes $(KUBE_VERSION) for the tests (once, some minutes)"
	@$(GO) -C test/kube build -v -p 2 -ldflags '$(KUBE_LDFLAGS)' -o $@ . $(COUNTED)
	@for p in $(KUBE_PROGRAMS); do ln -sf kube $(KUBE)/$$p; done

# kubelet's pod sources, for the differential test of internal/node/source:
# packages that the programs above have compiled already.
$(KUBE)/oracle: test/kube/go.mod test/kube/go.sum $(wildcard test/kube/oracle/*)
	@mkdir -p $(KUBE)
	@$(GO) -C test/kube build -ldflags '-s -w' -o $@ ./oracle

$(KUBE)/pause: test/kube/pause/main.go
	@mkdir -p $(KUBE)
	@$(GO) -C test/kube build -ldflags '-s -w' -o $@ ./pause

# Kubernetes' own end-to-end suites about networks, and what runs in their pods.
.PHONY: suites
suites: $(KUBE)/e2e.test $(KUBE)/ginkgo $(KUBE)/agnhost $(KUBE)/coredns

$(KUBE)/e2e.test: test/kube/go.mod test/kube/go.sum test/kube/e2e/e2e_test.go
	@mkdir -p $(KUBE)
	@echo "building Kubernetes' end-to-end suites (once, some minutes)"
	@$(GO) -C test/kube test -c -p 2 -ldflags '$(KUBE_LDFLAGS)' -o $@ ./e2e

$(KUBE)/ginkgo $(KUBE)/agnhost: test/kube/go.mod test/kube/go.sum
	@mkdir -p $(KUBE)
	@$(GO) -C test/kube build -p 2 -ldflags '-s -w' -o $(KUBE)/ github.com/onsi/ginkgo/v2/ginkgo k8s.io/kubernetes/test/images/agnhost
	@cd "$$($(GO) -C test/kube list -m -f '{{.Dir}}' k8s.io/kubernetes)/test/images/agnhost/porter" && install -m 644 localhost.crt localhost.key $(KUBE)/

$(KUBE)/coredns: test/kube/coredns/go.mod test/kube/coredns/go.sum test/kube/coredns/main.go
	@mkdir -p $(KUBE)
	@echo "building CoreDNS (once, some minutes)"
	@$(GO) -C test/kube/coredns build -p 2 -ldflags '-s -w' -o $@ .

# Without the snapshotters that need C libraries; shim and ctr lie beside it.
CONTAINERD := github.com/containerd/containerd/v2/cmd
$(KUBE)/containerd: test/kube/containerd/go.mod test/kube/containerd/go.sum
	@mkdir -p $(KUBE)
	@echo "building containerd for the tests (once, some minutes)"
	@$(GO) -C test/kube/containerd build -v -p 2 -tags 'no_btrfs no_zfs no_devmapper' -ldflags '-s -w' -o $(KUBE)/ \
		$(CONTAINERD)/containerd $(CONTAINERD)/containerd-shim-runc-v2 $(CONTAINERD)/ctr $(COUNTED)
	@touch $@

# The version before, which many nodes have, for make soak: it takes CNI 1.0 at the most. (1.6
# is Debian's package.)
CONTAINERD17 := github.com/containerd/containerd/cmd
$(KUBE)/containerd17/containerd: test/kube/containerd17/go.mod test/kube/containerd17/go.sum
	@mkdir -p $(@D)
	@echo "building containerd 1.7 for the tests (once, a minute)"
	@$(GO) -C test/kube/containerd17 build -p 2 -tags 'no_aufs no_btrfs no_zfs no_devmapper' -ldflags '-s -w' -o $(@D)/ \
		$(CONTAINERD17)/containerd $(CONTAINERD17)/containerd-shim-runc-v2 $(CONTAINERD17)/ctr
	@touch $@

# CRI's conformance suite, and the program that stands for those in its images.
CRITEST := $(CACHE)/cri
.PHONY: critest
critest: $(CRITEST)/critest $(CRITEST)/server

$(CRITEST)/critest: test/cri/go.mod test/cri/go.sum
	@mkdir -p $(CRITEST)
	@echo "building critest for the tests (once, a minute)"
	@$(GO) -C test/cri test -c -o $@ sigs.k8s.io/cri-tools/cmd/critest

$(CRITEST)/server: test/cri/server/main.go
	@mkdir -p $(CRITEST)
	@$(GO) -C test/cri build -ldflags '-s -w' -o $@ ./server

# Unpacked, never installed: it would manage the machine's NICs from the next boot on.
.PHONY: networkmanager
networkmanager: $(CACHE)/nm/.unpacked

$(CACHE)/nm/.unpacked: scripts/nm
	@scripts/nm $(@D)
	@touch $@

# Peers that must be built, each from a module of its own.
MULTUS := gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd
.PHONY: bench
bench: setup-bench root build floor kube $(TOOLS)/.cni $(PEERS)/.peers $(PEERS)/kube-ovn $(PEERS)/kubelet ## measure against the peers (spec: performance; BENCHFLAGS=-quick to try a change)
	@$(GO) -C bench run . $(BENCHFLAGS)

.PHONY: bench-scale
bench-scale: setup-bench root build kube ## one controller for 10,000 pods, 200 nodes, 200 policies (BENCHFLAGS=-quick for a tenth)
	@$(GO) -C bench run . -scale $(BENCHFLAGS)

.PHONY: profile
profile: PGO = off
profile: TAGS = grpcnotrace,profile
profile: setup-bench root build floor kube $(TOOLS)/.cni $(PEERS)/.peers ## make cmd/fairlead/agent.pgo anew, of the benchmark's load
	@rm -rf $(CACHE)/profiles && mkdir -p $(CACHE)/profiles
	@$(GOBUILD) -pgo=off -o bin/ ./cmd/fairlead
	@FAIRLEAD_PROFILES=$(CACHE)/profiles $(GO) -C bench run . -quick -rows 2,3,2o,4,5
	@$(GO) -C bench run ./pgo $(CURDIR)/cmd/fairlead/agent.pgo $$(find $(CACHE)/profiles -name '*.pprof')

# Alone, as it is shipped: what other programs are built in with it has memory too.
$(PEERS)/kubelet: test/kube/go.mod test/kube/go.sum
	@mkdir -p $(PEERS)
	@$(GO) -C test/kube build -p 2 -ldflags '$(KUBE_LDFLAGS)' -o $@ k8s.io/kubernetes/cmd/kubelet

# The floor that the benchmark compares with; its own tests use it too.
.PHONY: floor
floor:
	@mkdir -p $(PEERS)
	@$(GO) -C bench build -ldflags '-s -w' -o $(PEERS)/floor-agent ./floor/agent
	@$(GO) -C bench build -ldflags '-s -w' -o $(PEERS)/floor-plugin ./floor/plugin
	@$(GO) -C bench build -ldflags '-s -w' -o $(PEERS)/kube-ovn-steps ./kubeovn

$(PEERS)/.peers: bench/peers/multus/go.mod
	@mkdir -p $(PEERS)
	@echo "building Multus (once, a minute)"
	@$(GO) -C bench/peers/multus build -mod=mod -ldflags '-s -w' -o $(PEERS)/ $(MULTUS)/multus $(MULTUS)/multus-shim $(MULTUS)/multus-daemon
	@touch $@

$(PEERS)/kube-ovn: bench/peers/kubeovn/go.mod bench/peers/kubeovn/go.sum
	@mkdir -p $(PEERS)
	@echo "building Kube-OVN's plugin (once, two minutes)"
	@$(GO) -C bench/peers/kubeovn build -mod=mod -ldflags '-s -w' -o $@ github.com/kubeovn/kube-ovn/cmd/cni

.PHONY: lint
lint: setup-lint $(TOOLS)/.lint ## golangci-lint, shellcheck
	@$(TOOLS)/golangci-lint run ./...
	@cd bench && $(TOOLS)/golangci-lint run --config ../.golangci.yml ./...
	@shellcheck .ci/run $(wildcard scripts/*) test/vm/vmrun test/vm/run_in_guest test/vm/init
	@shellcheck -s bash test/vm/guest

.PHONY: build
build: ## bin/fairlead, bin/fairlead-cni and bin/fairlead-controller
	@mkdir -p bin
	@$(GOBUILD) -pgo=$(PGO) -o bin/ $(PROGRAMS)

# Every file is renamed into place, so that a running agent keeps its binary and
# a runtime never executes half a plugin.
put = install -D -m $(1) $(2) $(DESTDIR)$(3).new && mv -f $(DESTDIR)$(3).new $(DESTDIR)$(3)

.PHONY: install
install: build foreign ## binaries, plugin, systemd unit, folder of objects (DESTDIR, PREFIX, CNI_DIR, CNI_TYPES, FORCE=1)
	@$(foreach program,fairlead fairlead-controller,$(call put,0755,bin/$(program),$(PREFIX)/bin/$(program));)
	@$(foreach type,$(CNI_TYPES),$(call put,0755,bin/fairlead-cni,$(CNI_DIR)/$(type));)
	@sed 's#@PREFIX@#$(PREFIX)#; s#@OBJECTS_DIR@#$(OBJECTS_DIR)#' deploy/systemd/fairlead.service > bin/fairlead.service
	@$(call put,0644,bin/fairlead.service,$(UNIT_DIR)/fairlead.service)
	@$(call put,0644,deploy/systemd/ovs-vswitchd.service.d/fairlead.conf,$(UNIT_DIR)/ovs-vswitchd.service.d/fairlead.conf)
	@install -d $(DESTDIR)$(OBJECTS_DIR)

# A Go program carries the path of its package; ours of any version is found so.
ours = grep -qs github.com/fairlead/fairlead/cmd/fairlead-cni "$(1)"

# Nothing is installed where it would replace another project's plugin.
.PHONY: foreign
foreign:
	@$(if $(FORCE),,for type in $(CNI_TYPES); do \
		plugin=$(DESTDIR)$(CNI_DIR)/$$type; \
		if { [ -e "$$plugin" ] || [ -L "$$plugin" ]; } && ! $(call ours,$$plugin); then \
			echo "install: $$plugin is another program; nothing was installed" >&2; \
			echo "  next: move it away, leave $$type out of CNI_TYPES, or replace it with FORCE=1" >&2; \
			exit 1; \
		fi; \
	done)

# All types that an installation may have had, whatever CNI_TYPES says now.
.PHONY: uninstall
uninstall: ## remove what `make install` put there; objects and the state in /var/lib/fairlead stay
	@for type in $(sort fairlead multus kube-ovn $(CNI_TYPES)); do \
		plugin=$(DESTDIR)$(CNI_DIR)/$$type; \
		if $(call ours,$$plugin); then rm -f "$$plugin"; \
		elif [ -e "$$plugin" ]; then echo "left alone, not ours: $$plugin"; fi; \
	done
	@rm -f $(DESTDIR)$(PREFIX)/bin/fairlead $(DESTDIR)$(PREFIX)/bin/fairlead-controller $(DESTDIR)$(UNIT_DIR)/fairlead.service $(DESTDIR)$(UNIT_DIR)/ovs-vswitchd.service.d/fairlead.conf

.PHONY: clean
clean: ## remove everything that make built
	@rm -rf bin .cache

# What the test nodes run: our binaries with crash points, and a plugin
# directory in which the thin plugin has all its types beside the upstream ones.
.PHONY: testbin
testbin: TAGS = grpcnotrace,failpoint
testbin: $(TOOLS)/.cni
	@echo "building fairlead, fairlead-cni and fairlead-controller, with crash points"
	@mkdir -p $(FAILPOINT) $(TESTCNI)
	@$(GOBUILD) -o $(FAILPOINT)/ $(PROGRAMS)
	@for p in $(notdir $(CNI_PLUGINS)); do ln -f $(TOOLS)/$$p $(TESTCNI)/$$p; done
	@for p in fairlead multus kube-ovn; do ln -f $(FAILPOINT)/fairlead-cni $(TESTCNI)/$$p; done

$(TOOLS)/.cni: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	@echo "building upstream's CNI plugins (once, a minute)"
	@$(GO) -C tools build -ldflags '-s -w' -o $(TOOLS)/ $(CNI_PLUGINS) github.com/containernetworking/cni/cnitool
	@touch $@

$(TOOLS)/.lint: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	@$(GO) -C tools build -ldflags '-s -w' -o $(TOOLS)/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

.PHONY: setup-run setup-test setup-soak setup-race setup-bench setup-lint setup-cluster setup-vm
setup-run setup-test setup-soak setup-race setup-bench setup-lint setup-cluster setup-vm: setup-%:
	@scripts/setup $*

.PHONY: root
root:
	@[ "$$(id -u)" = 0 ] || { echo "this target makes network namespaces: run it as root" >&2; exit 1; }
