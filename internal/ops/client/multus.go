package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/fairlead/fairlead/api/agent"
)

// Adopt has the agent take containers that Multus attached into its journal.
func (c *Client) Adopt(ctx context.Context, m agent.Multus) (agent.AdoptResult, error) {
	return sendMultus[agent.AdoptResult](ctx, c, agent.PathMultusAdopt, m)
}

// Export asks for what Multus needs to detach the agent's attachments.
func (c *Client) Export(ctx context.Context, m agent.Multus) (agent.ExportResult, error) {
	return sendMultus[agent.ExportResult](ctx, c, agent.PathMultusExport, m)
}

// Release has the agent forget containers that Multus can detach.
func (c *Client) Release(ctx context.Context, m agent.Multus) (agent.AdoptResult, error) {
	return sendMultus[agent.AdoptResult](ctx, c, agent.PathMultusRelease, m)
}

func sendMultus[T any](ctx context.Context, c *Client, path string, m agent.Multus) (out T, err error) {
	body, err := json.Marshal(m)
	if err != nil {
		return out, fmt.Errorf("write the request: %w", err)
	}
	return send[T](ctx, c, http.MethodPost, path, body)
}
