package api_test

import (
	"errors"
	"testing"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/methods"
)

// TestF36AnAdministratorLeavesNoLinkBehind: what a link and a change are held to is who
// asked over the carrier, with the generation of their token.
func TestF36AnAdministratorLeavesNoLinkBehind(t *testing.T) {
	w := newWorld(t)
	must(w, w.admin(), methods.CreateOperator, admin.CreateOperatorCodec, admin.CreateOperatorAnswerCodec,
		admin.CreateOperator{OperatorID: "eve", Name: "Eve", Installation: true, MutationID: w.mutation()}, carrier.Proof{})
	w.operator("ada", "", "")
	eve := carrier.Proof{Token: w.login(w.link("eve"))}
	link := func() zone.Secret {
		return must(w, w.client(), methods.CreateLoginLink, admin.CreateLoginLinkCodec, admin.CreateLoginLinkAnswerCodec,
			admin.CreateLoginLink{OperatorID: "ada"}, eve).Code
	}
	w.login(link())
	kept := link()
	must(w, w.admin(), methods.DisableOperator, admin.DisableOperatorCodec, admin.DisableOperatorAnswerCodec,
		admin.DisableOperator{OperatorID: "eve", Disabled: true, MutationID: w.mutation()}, carrier.Proof{})
	_, err := call(w, w.client(), methods.ExchangeLoginLink, admin.ExchangeLoginLinkCodec, admin.ExchangeLoginLinkAnswerCodec,
		admin.ExchangeLoginLink{Code: kept}, carrier.Proof{})
	if !errors.Is(err, people.ErrLink) {
		t.Errorf("%v", err)
	}
}
