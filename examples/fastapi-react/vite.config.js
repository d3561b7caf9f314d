// While you develop, Vite serves the page and passes the agent's routes on to FastAPI.
export default { server: { proxy: { "/v1": "http://127.0.0.1:8000", "/api": "http://127.0.0.1:8000" } } }
