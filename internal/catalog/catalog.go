// Package catalog lists every register of refusals in one place, for the
// generated documents and for the test that holds them unique, documented and
// used. It refuses to hold refusals of its own.
package catalog

import (
	"github.com/allodhq/allod/certify"
	"github.com/allodhq/allod/internal/backup"
	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/ca/acme"
	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cli"
	"github.com/allodhq/allod/internal/cloud/act"
	cloudcluster "github.com/allodhq/allod/internal/cloud/cluster"
	cloudmachine "github.com/allodhq/allod/internal/cloud/machine"
	cloudnodes "github.com/allodhq/allod/internal/cloud/nodes"
	"github.com/allodhq/allod/internal/cloud/page"
	"github.com/allodhq/allod/internal/cloud/people"
	cloudstore "github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/token"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/internal/command"
	"github.com/allodhq/allod/internal/compose"
	"github.com/allodhq/allod/internal/compose/bench"
	"github.com/allodhq/allod/internal/compose/supervisor"
	"github.com/allodhq/allod/internal/configfile"
	"github.com/allodhq/allod/internal/console"
	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/doctor"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/gateway"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/internal/node/authority"
	"github.com/allodhq/allod/internal/node/bundle"
	nodecontrol "github.com/allodhq/allod/internal/node/control"
	nodedaemon "github.com/allodhq/allod/internal/node/daemon"
	"github.com/allodhq/allod/internal/node/host"
	"github.com/allodhq/allod/internal/node/keep"
	"github.com/allodhq/allod/internal/node/link"
	"github.com/allodhq/allod/internal/node/nodecli"
	nodepallet "github.com/allodhq/allod/internal/node/pallet"
	nodespark "github.com/allodhq/allod/internal/node/spark"
	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/allowlist"
	modelserver "github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/confine"
	"github.com/allodhq/allod/internal/runner/control"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/ledger"
	"github.com/allodhq/allod/internal/runner/outbox"
	"github.com/allodhq/allod/internal/runner/program"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/internal/service"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/site/pairpage"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/site/webhook"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/grant"
	"github.com/allodhq/allod/wire/ai/match"
	"github.com/allodhq/allod/wire/ai/signing"
	"github.com/allodhq/allod/wire/ai/succession"
	"github.com/allodhq/allod/wire/ai/weburl"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/frame"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/spark"
)

// All returns every register, in the order of the documents.
func All() []refusal.Registry {
	return []refusal.Registry{
		refusal.Kinds,
		command.Kinds,
		cli.Kinds,
		compose.Kinds,
		bench.Kinds,
		supervisor.Kinds,
		configfile.Kinds,
		site.Refusals,
		site.StoreKinds,
		sqlite.Kinds,
		webhook.Kinds,
		appapi.Kinds,
		gateway.Kinds,
		pairpage.Kinds,
		certify.Kinds,
		runner.Kinds,
		lane.Kinds,
		client.Kinds,
		modelserver.Kinds,
		program.Kinds,
		settings.Kinds,
		sharing.Kinds,
		allowlist.Kinds,
		home.Kinds,
		outbox.Kinds,
		ingress.Kinds,
		ledger.Kinds,
		control.Kinds,
		confine.Kinds,
		service.Kinds,
		doctor.Kinds,
		nodecontrol.Kinds,
		host.Kinds,
		bundle.Kinds,
		datadir.Kinds,
		httpd.Kinds,
		ca.Kinds,
		acme.Kinds,
		backup.Kinds,
		key.Kinds,
		keyfile.Kinds,
		ai.Refusals,
		signing.Kinds,
		envelope.Kinds,
		match.Kinds,
		grant.Kinds,
		succession.Kinds,
		backend.Kinds,
		weburl.Kinds,
		frame.Kinds,
		exact.Kinds,
		database.Kinds,
		console.Kinds,
		zone.Kinds,
		canon.Kinds,
		page.Kinds,
		cloudstore.Kinds,
		people.Kinds,
		token.Kinds,
		who.Kinds,
		act.Kinds,
		cloudcluster.Kinds,
		cloudmachine.Kinds,
		cloudnodes.Kinds,
		authority.Kinds,
		keep.Kinds,
		nodepallet.Kinds,
		link.Kinds,
		nodedaemon.Kinds,
		nodecli.Kinds,
		nodespark.Kinds,
		handshake.Kinds,
		enroll.Kinds,
		spark.Kinds,
		rpc.Kinds,
		carrier.Kinds,
	}
}
