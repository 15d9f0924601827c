import { Outlet, useLocation } from "@tanstack/react-router";
import { LoginPage } from "@/features/login/login-page";
import { isLoggedOut, useMe } from "@/shared/api/login";
import { Shell } from "./shell";

/** Every page; a browser that is not logged in sees how to log in. */
export function Root() {
  const { pathname } = useLocation();
  const { error } = useMe();
  if (pathname === "/login") return <Outlet />;
  if (isLoggedOut(error)) return <LoginPage />;
  return pathname.startsWith("/login/") ? <Outlet /> : <Shell />;
}
